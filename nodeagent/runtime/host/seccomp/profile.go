package seccomp

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// What the kernel does with a call.
const (
	actKillThread  = 0
	actTrap        = 0x00030000
	actErrno       = 0x00050000
	actTrace       = 0x7ff00000
	actLog         = 0x7ffc0000
	actAllow       = 0x7fff0000
	actKillProcess = 0x80000000
	actData        = 0xffff // The part of an action that is its error number.
	ePERM          = 1
	eNOSYS         = 38
)

// profile is the JSON format of the OCI runtime specification.
type profile struct {
	DefaultAction   string   `json:"defaultAction"`
	DefaultErrnoRet *uint32  `json:"defaultErrnoRet"`
	Architectures   []string `json:"architectures"`
	ListenerPath    string   `json:"listenerPath"`
	Syscalls        []struct {
		Names    []string        `json:"names"`
		Action   string          `json:"action"`
		ErrnoRet *uint32         `json:"errnoRet"`
		Args     []condition     `json:"args"`
		Includes json.RawMessage `json:"includes"`
		Excludes json.RawMessage `json:"excludes"`
	} `json:"syscalls"`
}

// Compile compiles a profile in the JSON format of the OCI runtime specification.
func Compile(text []byte) (string, error) {
	numbers, err := readTable()
	if err != nil {
		return "", err
	}
	var prof profile
	if err := json.Unmarshal(text, &prof); err != nil {
		return "", fmt.Errorf("the seccomp profile is not in the JSON format of OCI: %w", err)
	}
	if len(prof.Architectures) > 0 && !slices.ContainsFunc(prof.Architectures,
		func(a string) bool { return slices.Contains(archNames, a) }) {
		return "", fmt.Errorf("the seccomp profile is for %s, this machine is %s", strings.Join(prof.Architectures, ", "),
			archNames[0])
	}
	if prof.ListenerPath != "" {
		return "", errors.New("the seccomp profile names a listener, which the host runtime does not support")
	}
	otherwise, err := action(prof.DefaultAction, prof.DefaultErrnoRet)
	if err != nil {
		return "", fmt.Errorf("the seccomp profile's defaultAction: %w", err)
	}
	p := start()
	for i, rule := range prof.Syscalls {
		if given(rule.Includes) || given(rule.Excludes) {
			return "", fmt.Errorf("syscalls[%d] of the seccomp profile has includes or excludes, which are not in OCI's format",
				i)
		}
		act, err := action(rule.Action, rule.ErrnoRet)
		if err != nil {
			return "", fmt.Errorf("syscalls[%d] of the seccomp profile: %w", i, err)
		}
		code, err := compileRule(numbers, rule.Names, rule.Args, act)
		if err != nil {
			return "", fmt.Errorf("syscalls[%d] of the seccomp profile: %w", i, err)
		}
		p = append(p, code...)
	}
	return append(p, instruction{code: bpfReturn, k: otherwise}).bytes()
}

func given(m json.RawMessage) bool {
	s := strings.TrimSpace(string(m))
	return s != "" && s != "{}" && s != "null"
}

func compileRule(numbers map[string]uint32, names []string, args []condition, act uint32) (program, error) {
	var p program
	var plain []uint32
	for _, name := range names {
		n, ok := numbers[name]
		switch {
		case !ok:
		case len(args) == 0:
			plain = append(plain, n)
		default:
			code, err := when(n, args, act)
			if err != nil {
				return nil, err
			}
			p = append(p, code...)
		}
	}
	return append(p, anyOf(plain, act)...), nil
}

func action(name string, number *uint32) (uint32, error) {
	data := uint32(ePERM)
	if number != nil {
		data = *number & actData
	}
	switch name {
	case "SCMP_ACT_ALLOW":
		return actAllow, nil
	case "SCMP_ACT_LOG":
		return actLog, nil
	case "SCMP_ACT_ERRNO":
		return actErrno | data, nil
	case "SCMP_ACT_TRACE":
		return actTrace | data, nil
	case "SCMP_ACT_TRAP":
		return actTrap, nil
	case "SCMP_ACT_KILL", "SCMP_ACT_KILL_THREAD":
		return actKillThread, nil
	case "SCMP_ACT_KILL_PROCESS":
		return actKillProcess, nil
	}
	return 0, fmt.Errorf("action %q is not supported", name)
}

// readTable returns the numbers of the machine's system calls.
func readTable() (map[string]uint32, error) {
	out := map[string]uint32{}
	for _, entry := range strings.Split(table, ",") {
		name, number, _ := strings.Cut(entry, " ")
		if n, err := strconv.ParseUint(number, 10, 32); err == nil {
			out[name] = uint32(n)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("seccomp profiles are supported on amd64 and arm64 only")
	}
	return out, nil
}

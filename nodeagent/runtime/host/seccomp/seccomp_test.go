package seccomp

import (
	"encoding/binary"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"
)

// call is a system call as the kernel shows it to a filter.
type call struct {
	arch, number uint32
	args         [6]uint64
}

// run interprets a program as the kernel does, and fails on what the kernel would not take.
func run(t *testing.T, program string, c call) uint32 {
	t.Helper()
	var data [64]byte
	binary.NativeEndian.PutUint32(data[0:], c.number)
	binary.NativeEndian.PutUint32(data[4:], c.arch)
	for i, a := range c.args {
		binary.NativeEndian.PutUint64(data[16+8*i:], a)
	}
	var acc uint32
	for pc := 0; pc*8 < len(program); pc++ {
		b := []byte(program[pc*8 : pc*8+8])
		k := binary.NativeEndian.Uint32(b[4:])
		jump := func(yes bool) {
			if yes {
				pc += int(b[2])
			} else {
				pc += int(b[3])
			}
		}
		switch code := binary.NativeEndian.Uint16(b); code {
		case bpfLoad:
			acc = binary.NativeEndian.Uint32(data[k:])
		case bpfAnd:
			acc &= k
		case bpfEqual:
			jump(acc == k)
		case bpfGreater:
			jump(acc > k)
		case bpfAtLeast:
			jump(acc >= k)
		case bpfReturn:
			return k
		default:
			t.Fatalf("instruction %d has code %x", pc, code)
		}
	}
	t.Fatal("the program runs over its end")
	return 0
}

func number(t *testing.T, name string) uint32 {
	t.Helper()
	numbers, err := readTable()
	if err != nil {
		t.Skip(err)
	}
	n, ok := numbers[name]
	if !ok {
		t.Fatalf("no number of %s", name)
	}
	return n
}

// compare says what a condition means, in the plainest way.
func compare(c condition, v uint64) bool {
	switch c.Op {
	case "SCMP_CMP_EQ":
		return v == c.Value
	case "SCMP_CMP_NE":
		return v != c.Value
	case "SCMP_CMP_LT":
		return v < c.Value
	case "SCMP_CMP_LE":
		return v <= c.Value
	case "SCMP_CMP_GT":
		return v > c.Value
	case "SCMP_CMP_GE":
		return v >= c.Value
	}
	return v&c.Value == c.ValueTwo&c.Value
}

// Every comparison of 64-bit arguments, alone and together, means what it says: above all where only one half differs.
func TestConditions(t *testing.T) {
	read := number(t, "read")
	seed := time.Now().UnixNano()
	rnd := rand.New(rand.NewSource(seed))
	halves := []uint64{0, 1, 2, 1<<31 - 1, 1 << 31, 1<<32 - 1}
	pick := func() uint64 { return halves[rnd.Intn(len(halves))]<<32 | halves[rnd.Intn(len(halves))] }
	ops := []string{"SCMP_CMP_EQ", "SCMP_CMP_NE", "SCMP_CMP_LT", "SCMP_CMP_LE", "SCMP_CMP_GT", "SCMP_CMP_GE",
		"SCMP_CMP_MASKED_EQ"}
	for range 20_000 {
		conditions := make([]condition, 1+rnd.Intn(3))
		for i := range conditions {
			conditions[i] = condition{uint(rnd.Intn(6)), pick(), pick(), ops[rnd.Intn(len(ops))]}
		}
		rule, err := when(read, conditions, actKillProcess)
		if err != nil {
			t.Fatal(err)
		}
		code, err := append(append(start(), rule...), instruction{code: bpfReturn, k: actAllow}).bytes()
		if err != nil {
			t.Fatal(err)
		}
		c := call{arch: auditArch, number: read}
		for i := range c.args {
			c.args[i] = pick()
		}
		want := uint32(actKillProcess)
		for _, cond := range conditions {
			if !compare(cond, c.args[cond.Index]) {
				want = actAllow
			}
		}
		if got := run(t, code, c); got != want {
			t.Fatalf("seed %d: %+v of %x: %x, want %x", seed, conditions, c.args, got, want)
		}
		c.number++
		if got := run(t, code, c); got != actAllow {
			t.Fatalf("another call: %x", got)
		}
	}
}

// A list of any length is answered, whatever the place in it.
func TestLists(t *testing.T) {
	for _, n := range []int{0, 1, 199, 200, 201, 400, 777} {
		numbers := make([]uint32, n)
		for i := range numbers {
			numbers[i] = uint32(3 * i)
		}
		code, err := append(append(start(), anyOf(numbers, actTrap)...), instruction{code: bpfReturn, k: actAllow}).bytes()
		if err != nil {
			t.Fatal(err)
		}
		for nr := range uint32(3*n + 3) {
			want := uint32(actAllow)
			if slices.Contains(numbers, nr) {
				want = actTrap
			}
			if got := run(t, code, call{arch: auditArch, number: nr}); got != want {
				t.Fatalf("%d of %d: %x", nr, n, got)
			}
		}
	}
}

func TestDefault(t *testing.T) {
	eperm, enosys := uint32(actErrno|ePERM), uint32(actErrno|eNOSYS)
	plain, err := Default(nil)
	if err != nil {
		t.Skip(err)
	}
	admin, err := Default([]string{"SYS_ADMIN"})
	if err != nil {
		t.Fatal(err)
	}
	all, err := Default([]string{"ALL"})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args              [6]uint64
		plain, admin, all uint32
	}{
		"read":      {plain: actAllow, admin: actAllow, all: actAllow},
		"ptrace":    {plain: actAllow, admin: actAllow, all: actAllow},
		"mount":     {plain: eperm, admin: actAllow, all: actAllow},
		"unshare":   {plain: eperm, admin: actAllow, all: actAllow},
		"bpf":       {plain: eperm, admin: actAllow, all: actAllow},
		"reboot":    {plain: eperm, admin: eperm, all: actAllow},
		"keyctl":    {plain: eperm, admin: eperm, all: eperm},
		"clone3":    {plain: enosys, admin: actAllow, all: actAllow},
		"clone":     {plain: actAllow, admin: actAllow, all: actAllow, args: [6]uint64{0x003d0f00}}, // A thread.
		"clone\tns": {plain: eperm, admin: actAllow, all: actAllow, args: [6]uint64{0x10000011}},    // CLONE_NEWUSER
	} {
		call := call{arch: auditArch, number: number(t, strings.Fields(name)[0]), args: c.args}
		for which, p := range map[string]struct {
			code string
			want uint32
		}{"plain": {plain, c.plain}, "admin": {admin, c.admin}, "all": {all, c.all}} {
			if got := run(t, p.code, call); got != p.want {
				t.Errorf("%s, %s: %x, want %x", name, which, got, p.want)
			}
		}
		call.arch = 0x40000003 // 32-bit
		if got := run(t, plain, call); got != eperm {
			t.Errorf("%s of a 32-bit program: %x", name, got)
		}
	}
	if otherABI != 0 {
		if got := run(t, all, call{arch: auditArch, number: otherABI | 1}); got != eperm {
			t.Errorf("a call of the other numbering: %x", got)
		}
	}
}

func TestCompile(t *testing.T) {
	read, write, open := number(t, "read"), number(t, "write"), number(t, "openat")
	code, err := Compile([]byte(`{"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 38, "architectures": ["` +
		archNames[0] + `", "SCMP_ARCH_X86"], "syscalls": [
		{"names": ["read", "no_such_call"], "action": "SCMP_ACT_ALLOW"},
		{"names": ["write"], "action": "SCMP_ACT_KILL_PROCESS", "args": [{"index": 0, "value": 2, "op": "SCMP_CMP_EQ"}]},
		{"names": ["write"], "action": "SCMP_ACT_LOG", "includes": {}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		number uint32
		arg    uint64
		want   uint32
	}{{read, 0, actAllow}, {write, 2, actKillProcess}, {write, 1, actLog}, {open, 0, actErrno | 38}} {
		if got := run(t, code, call{arch: auditArch, number: c.number, args: [6]uint64{c.arg}}); got != c.want {
			t.Errorf("%+v: %x", c, got)
		}
	}
	logged := func(syscalls string) string {
		return `{"defaultAction": "SCMP_ACT_LOG", "syscalls": [` + syscalls + `]}`
	}
	for text, want := range map[string]string{
		`{`:                               "JSON",
		`{"defaultAction": "SCMP_ACT_X"}`: `defaultAction: action "SCMP_ACT_X" is not supported`,
		`{"defaultAction": "SCMP_ACT_LOG", "architectures": ["SCMP_ARCH_MIPS"]}`:       "is for SCMP_ARCH_MIPS",
		`{"defaultAction": "SCMP_ACT_LOG", "listenerPath": "/x"}`:                      "listener",
		logged(`{"names": ["read"], "action": "SCMP_ACT_NOTIFY"}`):                     "syscalls[0]",
		logged(`{"action": "SCMP_ACT_LOG", "excludes": {"caps": ["CAP_BPF"]}}`):        "includes or excludes",
		logged(`{"names": ["read"], "action": "SCMP_ACT_LOG", "args": [{}]}`):          "unknown comparison",
		logged(`{"names": ["read"], "action": "SCMP_ACT_LOG", "args": [{"index":6}]}`): "six arguments",
	} {
		if _, err := Compile([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	rule := `{"names": ["read"], "action": "SCMP_ACT_LOG", "args": [{"index": 0, "value": %d, "op": "SCMP_CMP_EQ"}]}`
	var rules []string
	for i := range 1000 {
		rules = append(rules, fmt.Sprintf(rule, i))
	}
	if _, err := Compile([]byte(`{"defaultAction": "SCMP_ACT_LOG", "syscalls": [` + strings.Join(rules, ",") +
		`]}`)); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("a profile that is too long: %v", err)
	}
}

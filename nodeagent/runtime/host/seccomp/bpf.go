package seccomp

import (
	"encoding/binary"
	"errors"
)

// Codes of classic BPF.
const (
	bpfLoad    = 0x20 // Load the word at k.
	bpfAnd     = 0x54
	bpfEqual   = 0x15
	bpfGreater = 0x25
	bpfAtLeast = 0x35
	bpfReturn  = 0x06
)

// Offsets in struct seccomp_data. The machines of this package store the low half of a number first.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
)

// maxProgram is how many instructions the kernel takes.
const maxProgram = 4096

// fail is a jump out of a rule, to be filled in when the rule's length is known.
const fail = 255

// instruction is struct sock_filter.
type instruction struct {
	code   uint16
	jt, jf uint8
	k      uint32
}

type program []instruction

func (p program) bytes() (string, error) {
	if len(p) > maxProgram {
		return "", errors.New("the seccomp profile is too long for the kernel")
	}
	var b []byte
	for _, i := range p {
		b = binary.NativeEndian.AppendUint16(b, i.code)
		b = append(b, i.jt, i.jf)
		b = binary.NativeEndian.AppendUint32(b, i.k)
	}
	return string(b), nil
}

// start refuses calls by another numbering, and loads the number of the call.
func start() program {
	p := program{
		{code: bpfLoad, k: offsetArch},
		{code: bpfEqual, jt: 1, k: auditArch},
		{code: bpfReturn, k: actErrno | ePERM},
		{code: bpfLoad, k: offsetNumber},
	}
	if otherABI != 0 {
		p = append(p, instruction{code: bpfAtLeast, jf: 1, k: otherABI}, instruction{code: bpfReturn, k: actErrno | ePERM})
	}
	return p
}

// anyOf answers calls with these numbers. It expects the number loaded, and leaves it so.
func anyOf(numbers []uint32, action uint32) program {
	const most = 200 // What a jump can skip, with some room.
	var p program
	for len(numbers) > 0 {
		n := min(len(numbers), most)
		for i, nr := range numbers[:n] {
			p = append(p, instruction{code: bpfEqual, jt: uint8(n - 1 - i), k: nr})
		}
		p[len(p)-1].jf = 1
		p = append(p, instruction{code: bpfReturn, k: action})
		numbers = numbers[n:]
	}
	return p
}

// when answers a call with this number if all conditions hold. It expects the number loaded, and leaves it so.
func when(number uint32, conditions []condition, action uint32) (program, error) {
	p := program{{code: bpfEqual, jf: fail, k: number}}
	for _, c := range conditions {
		code, err := c.compile()
		if err != nil {
			return nil, err
		}
		p = append(p, code...)
	}
	p = append(p, instruction{code: bpfReturn, k: action}, instruction{code: bpfLoad, k: offsetNumber})
	end := len(p) - 1 // A rule that does not apply goes on where the number is loaded again.
	for i := range p {
		if p[i].jt == fail {
			p[i].jt = uint8(end - i - 1)
		}
		if p[i].jf == fail {
			p[i].jf = uint8(end - i - 1)
		}
	}
	return p, nil
}

// condition compares one argument of a call.
type condition struct {
	Index    uint   `json:"index"`
	Value    uint64 `json:"value"`
	ValueTwo uint64 `json:"valueTwo"`
	Op       string `json:"op"`
}

// compile makes code that goes on behind itself if the condition holds, and fails otherwise.
func (c condition) compile() (program, error) {
	if c.Index > 5 {
		return nil, errors.New("a system call has six arguments: the index is 0 to 5")
	}
	low := instruction{code: bpfLoad, k: uint32(offsetArgs + 8*c.Index)}
	high := instruction{code: bpfLoad, k: low.k + 4}
	l, h := uint32(c.Value), uint32(c.Value>>32)
	switch c.Op {
	case "SCMP_CMP_EQ":
		return program{high, {code: bpfEqual, jf: fail, k: h}, low, {code: bpfEqual, jf: fail, k: l}}, nil
	case "SCMP_CMP_NE":
		return program{high, {code: bpfEqual, jf: 2, k: h}, low, {code: bpfEqual, jt: fail, k: l}}, nil
	case "SCMP_CMP_GE":
		return program{high, {code: bpfGreater, jt: 3, k: h}, {code: bpfEqual, jf: fail, k: h}, low,
			{code: bpfAtLeast, jf: fail, k: l}}, nil
	case "SCMP_CMP_GT":
		return program{high, {code: bpfGreater, jt: 3, k: h}, {code: bpfEqual, jf: fail, k: h}, low,
			{code: bpfGreater, jf: fail, k: l}}, nil
	case "SCMP_CMP_LT":
		return program{high, {code: bpfGreater, jt: fail, k: h}, {code: bpfEqual, jf: 2, k: h}, low,
			{code: bpfAtLeast, jt: fail, k: l}}, nil
	case "SCMP_CMP_LE":
		return program{high, {code: bpfGreater, jt: fail, k: h}, {code: bpfEqual, jf: 2, k: h}, low,
			{code: bpfGreater, jt: fail, k: l}}, nil
	case "SCMP_CMP_MASKED_EQ":
		want := c.ValueTwo & c.Value
		return program{high, {code: bpfAnd, k: h}, {code: bpfEqual, jf: fail, k: uint32(want >> 32)},
			low, {code: bpfAnd, k: l}, {code: bpfEqual, jf: fail, k: uint32(want)}}, nil
	}
	return nil, errors.New("unknown comparison " + c.Op)
}

package fake

import (
	"bytes"

	"google.golang.org/protobuf/proto"
)

// packed is a message in its encoded form, which takes a quarter of the memory: there may be ten thousand containers,
// and their configurations are seldom looked at.
type packed[T any, P interface {
	*T
	proto.Message
}] []byte

func (p *packed[T, P]) put(m P) (err error) {
	*p, err = proto.Marshal(m)
	return err
}

// get returns a message of the caller's own.
func (p packed[T, P]) get() P {
	m := P(new(T))
	if proto.Unmarshal(p, m) != nil {
		return P(new(T)) // never: put has encoded it
	}
	return m
}

// mayMatch says whether the labels in the message can carry every pair of want. Text is encoded as it is, so that most
// messages are told apart without being unpacked.
func (p packed[T, P]) mayMatch(want map[string]string) bool {
	for _, v := range want {
		if !bytes.Contains(p, []byte(v)) {
			return false
		}
	}
	return true
}

package embedded

import (
	"context"
	"errors"
	"testing"

	servererrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
)

// What etcd gives up because the leader had changed is read again, as long as somebody waits for it; any other error
// is the reader's.
func TestReadsAgain(t *testing.T) {
	other := errors.New("another error")
	for name, c := range map[string]struct {
		errs  []error
		want  error
		reads int
	}{
		"at once":             {[]error{nil}, nil, 1},
		"at the second try":   {[]error{servererrors.ErrLeaderChanged, nil}, nil, 2},
		"another error":       {[]error{servererrors.ErrLeaderChanged, other, nil}, other, 2},
		"nobody waits for it": {[]error{servererrors.ErrLeaderChanged, nil}, servererrors.ErrLeaderChanged, 1},
	} {
		reads := 0
		limited, stop := context.WithCancel(t.Context())
		if name == "nobody waits for it" {
			stop()
		}
		_, err := readAgain(limited, func() (int, error) {
			reads++
			return reads, c.errs[reads-1]
		})
		stop()
		if !errors.Is(err, c.want) || reads != c.reads {
			t.Errorf("%s: %v after %d reads, want %v after %d", name, err, reads, c.want, c.reads)
		}
	}
}

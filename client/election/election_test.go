package election_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	coordinationv1 "monoplane.dev/api/coordination/v1"
	coordinationv1rpc "monoplane.dev/api/coordination/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/client/election"
	"monoplane.dev/client/record"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The ways of a link to the server.
const (
	up = iota
	// down: calls take as long as they may.
	down
	// deaf: what is asked for happens, and the answer is lost.
	deaf
)

// link is the connection of a candidate.
type link struct {
	grpc.ClientConnInterface

	mu   sync.Mutex
	mode int
}

func (l *link) set(mode int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mode = mode
}

// Invoke implements grpc.ClientConnInterface.
func (l *link) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	l.mu.Lock()
	mode := l.mode
	l.mu.Unlock()
	switch mode {
	case down:
		<-ctx.Done()
		return apierrors.New(apierrors.Timeout, "the link is down")
	case deaf:
		_ = l.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
		<-ctx.Done()
		return apierrors.New(apierrors.Timeout, "the answer was lost")
	default:
		return l.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
	}
}

// world has candidates for one Lease, in virtual time.
type world struct {
	*testing.T
	server *apitest.Server
	c      *client.Client
	all    []*candidate
}

// candidate is one of them.
type candidate struct {
	name string
	link *link
	stop context.CancelFunc
	done chan error

	mu    sync.Mutex
	term  *election.Term // nil while it does not lead
	terms int
}

func inWorld(t *testing.T, candidates int, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: apitest.StartWith(t, apitest.Config{})}
		w.c = w.server.Admin()
		for i := range candidates {
			w.all = append(w.all, w.begin(fmt.Sprint("c", i), nil))
			synctest.Wait()
		}
		f(w)
		for _, c := range w.all {
			c.link.set(up)
			c.stop()
			if err := <-c.done; !errors.Is(err, context.Canceled) {
				t.Errorf("%s ended with %v", c.name, err)
			}
		}
	})
}

// begin starts a candidate. It does work in its terms, if that is not nil.
func (w *world) begin(name string, work func(ctx context.Context, t *election.Term) error) *candidate {
	w.Helper()
	c := &candidate{name: name, done: make(chan error, 1), link: &link{
		ClientConnInterface: w.server.Conn(apitest.User("system:controller:leader-election")),
	}}
	api := client.New(c.link)
	events := record.New(record.Config{Events: api.Events, Controller: "election", Instance: name})
	e, err := election.New(election.Config{
		Leases: api.Leases, Namespace: "kube-system", Name: "lease", Identity: name, Recorder: events,
	})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.Context())
	c.stop = cancel
	go func() { _ = events.Run(ctx) }()
	go func() {
		c.done <- e.Run(ctx, func(ctx context.Context, t *election.Term) error {
			c.mu.Lock()
			c.term, c.terms = t, c.terms+1
			c.mu.Unlock()
			if work != nil {
				return work(ctx, t)
			}
			<-ctx.Done()
			c.mu.Lock()
			c.term = nil
			c.mu.Unlock()
			return ctx.Err()
		})
	}()
	return c
}

// leads reports whether a candidate is in a term that goes on.
func (c *candidate) leads() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.term != nil && c.term.Err() == nil
}

// leader returns who leads, empty for nobody, once nothing more happens at this time.
func (w *world) leader() string {
	w.Helper()
	synctest.Wait()
	var all []string
	for _, c := range w.all {
		if c.leads() {
			all = append(all, c.name)
		}
	}
	if len(all) > 1 {
		w.Fatalf("at %v lead %v", time.Now(), all)
	}
	return strings.Join(all, " ")
}

// until waits until somebody else leads than before, and returns who, and how long nobody did.
func (w *world) until(before string) (leader string, nobody time.Duration) {
	w.Helper()
	began := time.Now()
	for time.Since(began) < 2*time.Minute {
		switch now := w.leader(); now {
		case "":
			nobody += 500 * time.Millisecond
		case before:
		default:
			return now, nobody
		}
		time.Sleep(500 * time.Millisecond)
	}
	w.Fatalf("after two minutes nobody leads but %q", before)
	return "", 0
}

func (w *world) lease() *coordinationv1.Lease {
	w.Helper()
	l, err := w.c.Leases.Get(w.Context(), &metav1.GetRequest{Namespace: "kube-system", Name: "lease"})
	if err != nil {
		w.Fatal(err)
	}
	return l
}

// The first leads, renews its Lease, and gives it back at its end: the next one need not wait.
func TestLeadersFollowEachOther(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		if got := w.leader(); got != "c0" {
			w.Fatalf("%q leads", got)
		}
		acquired := w.lease()
		time.Sleep(30 * time.Minute)
		l := w.lease()
		s := l.GetSpec()
		want := &coordinationv1.LeaseSpec{
			HolderIdentity: proto.String("c0"), LeaseDurationSeconds: proto.Int32(15), LeaseTransitions: proto.Int32(0),
			AcquireTime: acquired.GetSpec().GetAcquireTime(), RenewTime: s.GetRenewTime(),
		}
		if !proto.Equal(s, want) || time.Since(value.GoMicroTime(s.GetRenewTime())) > 2*time.Second {
			w.Errorf("after half an hour the Lease is %v, want %v", s, want)
		}
		w.all[0].stop()
		next, nobody := w.until("c0")
		if nobody > 5*time.Second {
			w.Errorf("nobody has led for %v", nobody)
		}
		s = w.lease().GetSpec()
		if s.GetHolderIdentity() != next || s.GetLeaseTransitions() != 1 {
			w.Errorf("%s leads, and the Lease is %v", next, s)
		}
		time.Sleep(time.Minute)
		list, err := w.c.Events.List(w.Context(), &metav1.ListRequest{Namespace: "kube-system"})
		if err != nil {
			w.Fatal(err)
		}
		var told []string
		for _, e := range list.GetItems() {
			told = append(told, e.GetReason()+" "+e.GetInvolvedObject().GetName()+": "+e.GetMessage())
		}
		if len(told) != 2 || told[0] != "LeaderElection lease: c0 became leader" {
			w.Errorf("events: %q", told)
		}
	})
}

// A leader that cannot reach the server ends its term before another one begins. When it is back, it waits its turn.
func TestLeaderThatIsCutOff(t *testing.T) {
	for name, mode := range map[string]int{"down": down, "deaf": deaf} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 2, func(w *world) {
				time.Sleep(time.Minute)
				cut := time.Now()
				w.all[0].link.set(mode)
				next, nobody := w.until("c0")
				if next != "c1" || nobody < 2*time.Second {
					w.Errorf("%s leads after %v, of which nobody led for %v", next, time.Since(cut), nobody)
				}
				w.all[0].link.set(up)
				time.Sleep(time.Minute)
				if got := w.leader(); got != "c1" || w.all[0].terms != 1 {
					w.Errorf("%q leads, after %d terms of c0", got, w.all[0].terms)
				}
				w.all[1].stop()
				if next, _ := w.until("c1"); next != "c0" {
					w.Errorf("%q leads", next)
				}
			})
		})
	}
}

// A leader whose process stood still writes nothing more; what was on its way already meets a newer revision.
func TestLeaderThatStoodStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: apitest.StartWith(t, apitest.Config{})}
		w.c = w.server.Admin()
		w.server.Namespaces(t, "ns")
		made, err := w.c.ConfigMaps.Create(t.Context(), &corev1rpc.CreateConfigMapRequest{Object: &corev1.ConfigMap{
			Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "work"}, Data: map[string]string{"by": "nobody"}}})
		if err != nil {
			t.Fatal(err)
		}
		write := func(conn grpc.ClientConnInterface, by string) error {
			next := object.Clone(made)
			next.Data["by"] = by
			_, err := client.New(conn).ConfigMaps.Update(t.Context(), &corev1rpc.UpdateConfigMapRequest{
				Namespace: "ns", Name: "work", Object: next})
			return err
		}
		plain := w.server.Conn(apitest.User("admin", "system:masters"))
		awake, ended := make(chan struct{}), make(chan struct{})
		// It does not notice that its context has ended: it stands still.
		still := w.begin("still", func(ctx context.Context, term *election.Term) error {
			defer close(ended)
			<-awake
			if err := write(term.Conn(plain), "the leader of old"); !apierrors.Is(err, apierrors.ServiceUnavailable) {
				t.Errorf("a write after the term: %v", err)
			}
			if _, err := client.New(term.Conn(plain)).ConfigMaps.Watch(t.Context(), &metav1.WatchRequest{}); !apierrors.Is(
				err, apierrors.ServiceUnavailable) {
				t.Errorf("a watch after the term: %v", err)
			}
			if err := write(plain, "the leader of old"); !apierrors.Is(err, apierrors.Conflict) {
				t.Errorf("a write that was on its way: %v", err)
			}
			return ctx.Err()
		})
		synctest.Wait()
		still.link.set(down)
		wrote := make(chan error, 1)
		next := w.begin("next", func(ctx context.Context, term *election.Term) error {
			wrote <- write(term.Conn(plain), "the next leader")
			<-ctx.Done()
			return ctx.Err()
		})
		if err := <-wrote; err != nil {
			t.Errorf("the next leader: %v", err)
		}
		still.link.set(up)
		close(awake)
		<-ended
		for _, c := range []*candidate{still, next} {
			c.stop()
			<-c.done
		}
	})
}

// Whatever links break and come back: nobody leads while another does, and with links that hold somebody does.
func TestNeverTwo(t *testing.T) {
	for i := range 3 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 0))
			inWorld(t, 4, func(w *world) {
				for range 40 {
					c := w.all[r.IntN(len(w.all))]
					c.link.set([]int{up, up, down, deaf}[r.IntN(4)])
					for range r.IntN(20) {
						time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
						w.leader()
					}
				}
				for _, c := range w.all {
					c.link.set(up)
				}
				time.Sleep(time.Minute)
				for range 5 {
					now := w.leader()
					for _, c := range w.all {
						c.link.set(up)
						if c.name == now {
							c.link.set(down)
						}
					}
					w.until(now)
				}
			})
		})
	}
}

// Somebody who writes into the Lease, or removes it, does not end a term.
func TestLeaseThatOthersWrite(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		for range 10 {
			time.Sleep(3300 * time.Millisecond) // not when it is renewed
			next := object.Clone(w.lease())
			next.Metadata.Labels = map[string]string{"at": fmt.Sprint(time.Now().Unix())}
			if _, err := w.c.Leases.Update(w.Context(), &coordinationv1rpc.UpdateLeaseRequest{
				Namespace: "kube-system", Name: "lease", Object: next}); err != nil {
				w.Fatal(err)
			}
		}
		time.Sleep(20 * time.Second)
		if w.lease().GetMetadata().GetLabels()["at"] == "" || w.leader() != "c0" || w.all[0].terms != 1 {
			w.Errorf("%q leads, after %d terms of c0: %v", w.leader(), w.all[0].terms, w.lease())
		}
	})
}

// What ends by itself ends the election, and the Lease is free.
func TestWorkThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: apitest.StartWith(t, apitest.Config{})}
		w.c = w.server.Admin()
		broken := errors.New("it broke")
		for _, want := range []error{broken, nil} {
			c := w.begin("c", func(context.Context, *election.Term) error { return want })
			err := <-c.done
			if err == nil || want != nil && !errors.Is(err, want) {
				t.Errorf("ended with %v, want %v", err, want)
			}
			c.stop()
			synctest.Wait()
			if got := w.lease().GetSpec().GetHolderIdentity(); got != "" {
				t.Errorf("%q holds the Lease", got)
			}
		}
	})
}

func TestTimes(t *testing.T) {
	for text, x := range map[string]election.Times{
		"must be more than the 15s":     {RenewDeadline: 15 * time.Second},
		"more than 1.2 times the 9s":    {RetryPeriod: 9 * time.Second},
		"must last a second at least":   {LeaseDuration: time.Millisecond, RenewDeadline: 1, RetryPeriod: 1},
		"after a time that is positive": {RetryPeriod: -1},
	} {
		if _, err := x.Complete(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v: %v, want %q", x, err, text)
		}
	}
	if _, err := election.New(election.Config{Name: "x"}); err == nil {
		t.Error("a candidate without anything")
	}
}

package fair_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/fair"
)

// One client floods, and another's requests wait no longer than one of the flood takes.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fair.New(fair.Config{Seats: 8, Queue: 1000, Wait: time.Hour})
		var flood sync.WaitGroup
		for _, user := range []string{"mallory", "trent"} { // together they have all seats
			for range 400 {
				flood.Go(func() {
					seat, err := l.Acquire(t.Context(), user)
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(10 * time.Millisecond)
					seat.Release()
				})
			}
		}
		synctest.Wait()
		for range 20 {
			begun := time.Now()
			seat, err := l.Acquire(t.Context(), "alice")
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begun); took > 10*time.Millisecond {
				t.Errorf("waited %v", took)
			}
			time.Sleep(time.Millisecond)
			seat.Release()
		}
		flood.Wait()
	})
}

// Requests of one user that hang leave room for others, and are refused beyond what may wait, or after the time that
// they may.
func TestRequestsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fair.New(fair.Config{Seats: 8, Queue: 2, Wait: time.Second})
		var held []fair.Seat
		for range 6 {
			seat, err := l.Acquire(t.Context(), "mallory")
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, seat)
		}
		var waiting sync.WaitGroup
		for range 2 {
			waiting.Go(func() {
				begun := time.Now()
				if _, err := l.Acquire(t.Context(), "mallory"); !apierrors.Is(err, apierrors.TooManyRequests) ||
					apierrors.From(err).Status().GetDetails().GetRetryAfterSeconds() == 0 || time.Since(begun) != time.Second {
					t.Errorf("after %v: %v", time.Since(begun), err)
				}
			})
		}
		synctest.Wait()
		begun := time.Now()
		if _, err := l.Acquire(t.Context(), "mallory"); !apierrors.Is(err, apierrors.TooManyRequests) {
			t.Errorf("one more than may wait: %v", err)
		}
		seat, err := l.Acquire(t.Context(), "alice")
		if err != nil || time.Since(begun) > 0 {
			t.Errorf("another user waited %v: %v", time.Since(begun), err)
		}
		seat.Release()
		waiting.Wait()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := l.Acquire(gone, "mallory"); err == nil {
			t.Error("a client that is gone got a seat")
		}
		for _, s := range held {
			s.Release()
		}
	})
}

// What lasts has seats of its own, and one user not all of them.
func TestWhatLasts(t *testing.T) {
	l := fair.New(fair.Config{Seats: 1, Long: 10})
	var seats []fair.Seat
	for range 5 {
		seat, err := l.AcquireLong("mallory")
		if err != nil {
			t.Fatal(err)
		}
		seats = append(seats, seat)
	}
	if _, err := l.AcquireLong("mallory"); !apierrors.Is(err, apierrors.TooManyRequests) {
		t.Errorf("more than half: %v", err)
	}
	for range 5 {
		if _, err := l.AcquireLong("alice"); err != nil {
			t.Error(err)
		}
	}
	if _, err := l.AcquireLong("bob"); !apierrors.Is(err, apierrors.TooManyRequests) {
		t.Errorf("more than all: %v", err)
	}
	if _, err := l.Acquire(t.Context(), "mallory"); err != nil {
		t.Errorf("a request beside what lasts: %v", err)
	}
	seats[0].Release()
	if _, err := l.AcquireLong("bob"); err != nil {
		t.Errorf("a seat that was given back: %v", err)
	}
}

// stream is a stream of a user, as gRPC has it, of which only the context is looked at.
type stream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s stream) Context() context.Context { return s.ctx }

// Of 100 000 watches that two users open over gRPC each has 8 192, and all others are told when to come again; a third
// user asks what he likes meanwhile, and once the watches have ended there is room again.
func TestTooManyWatches(t *testing.T) {
	l := fair.New(fair.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	var open, refused atomic.Int64
	var watches sync.WaitGroup
	judged := make(chan struct{}, 100_000)
	watch := func(_ any, s grpc.ServerStream) error {
		open.Add(1)
		judged <- struct{}{}
		<-s.Context().Done()
		return nil
	}
	for i := range 100_000 {
		user := authn.WithUser(ctx, &authn.User{Name: []string{"mallory", "trent"}[i%2]})
		watches.Go(func() {
			err := l.Stream(nil, stream{ctx: user}, &grpc.StreamServerInfo{}, watch)
			if err == nil {
				return
			}
			again := apierrors.From(err).Status()
			if again.GetCode() != 429 || again.GetDetails().GetRetryAfterSeconds() != 1 {
				t.Errorf("refused with %v", again)
			}
			refused.Add(1)
			judged <- struct{}{}
		})
	}
	for range 100_000 {
		<-judged
	}
	if open.Load() != 2*8192 || refused.Load() != 100_000-2*8192 {
		t.Errorf("%d watches are open, %d were refused", open.Load(), refused.Load())
	}
	seat, err := l.Acquire(t.Context(), "alice")
	if err != nil {
		t.Fatalf("a request beside them: %v", err)
	}
	seat.Release()
	cancel()
	watches.Wait()
	if _, err := l.AcquireLong("alice"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// However requests come, go and give up: never more are served than may be, users that all have requests waiting are
// served equally often, and in the end every seat is free.
func TestFairness(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 20 {
		seats, users, each := 1+r.IntN(6), 2+r.IntN(4), 20+r.IntN(30)
		quit := make([]time.Duration, users*each)
		for i := range quit {
			quit[i] = time.Hour
			if r.IntN(5) == 0 {
				quit[i] = time.Duration(1+r.IntN(40)) * time.Millisecond
			}
		}
		synctest.Test(t, func(t *testing.T) {
			l := fair.New(fair.Config{Seats: seats, Queue: each, Wait: time.Hour})
			var mu sync.Mutex
			inside, most := 0, 0
			served, waiting := make([]int, users), make([]int, users)
			var all sync.WaitGroup
			for u := range waiting {
				waiting[u] = each
			}
			for i := range users * each {
				u := i % users
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), quit[i])
					defer cancel()
					seat, err := l.Acquire(ctx, fmt.Sprint("user-", u))
					mu.Lock()
					waiting[u]--
					if err != nil {
						mu.Unlock()
						return
					}
					served[u]++
					inside++
					most = max(most, inside)
					low, high := each, 0
					for v := range users {
						if waiting[v] > 0 {
							low, high = min(low, served[v]), max(high, served[v])
						}
					}
					if high-low > 2*seats+1 {
						t.Errorf("served %v while %v wait, of %d seats", served, waiting, seats)
					}
					mu.Unlock()
					time.Sleep(10 * time.Millisecond)
					mu.Lock()
					inside--
					mu.Unlock()
					seat.Release()
				})
			}
			all.Wait()
			if most > seats {
				t.Errorf("%d served at once, of %d seats", most, seats)
			}
			for range seats { // of different users, none of whom may have all
				if _, err := l.Acquire(t.Context(), fmt.Sprint("last-", inside)); err != nil {
					t.Errorf("no seat in the end: %v", err)
				}
				inside++
			}
		})
	}
}

// Who acts as somebody else takes seats of his own.
func TestUser(t *testing.T) {
	u := &authn.User{Name: "bob", Impersonator: &authn.User{Name: "eve"}}
	if got := fair.User(authn.WithUser(t.Context(), u)); got != "eve" {
		t.Errorf("seats of %s", got)
	}
	if got := fair.User(t.Context()); got != authn.AnonymousName {
		t.Errorf("seats of %s", got)
	}
}

func TestSeatsCostNoAllocation(t *testing.T) {
	l, ctx := fair.New(fair.Config{}), context.Background()
	n := testing.AllocsPerRun(1000, func() {
		seat, err := l.Acquire(ctx, "alice")
		if err != nil {
			t.Fatal(err)
		}
		seat.Release()
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAcquire(b *testing.B) {
	l, ctx := fair.New(fair.Config{}), context.Background()
	for b.Loop() {
		seat, err := l.Acquire(ctx, "alice")
		if err != nil {
			b.Fatal(err)
		}
		seat.Release()
	}
}

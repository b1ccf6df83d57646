package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"monoplane.dev/apierrors"
	"monoplane.dev/client/cache"
	"monoplane.dev/object"
)

// content is a ConfigMap or a Secret.
type content interface {
	object.Object
	comparable
	GetImmutable() bool
}

// kind is all that is known of the objects of one kind.
type kind[T content] struct {
	cfg    Config
	kind   *object.Kind
	source cache.Source[T]
	same   func(a, b T) bool // in their content

	mu sync.Mutex
	// followers holds what pods refer to; nil until there is something.
	followers map[cache.Key]*follower[T]
}

// follower keeps one object up to date. The package comment draws its states.
type follower[T content] struct {
	kind *kind[T]
	key  cache.Key

	mu   sync.Mutex
	uids []string // of the pods that refer to it
	// cancel ends the watch; nil while there is none.
	cancel context.CancelFunc
	// asked is closed by the first answer, or failure, since the watch began; nil before anybody has asked.
	asked chan struct{}
	// known says that there has been an answer: object, or that there is none when it is nil.
	known  bool
	object T
	// err is why the watch was lost; it counts while nothing is known.
	err error
}

var (
	errSilent    = errors.New("the API has not answered in time")
	errForgotten = errors.New("no pod of this node refers to it any more")
)

// refer says what a pod refers to, and what it did before; both in order.
func (k *kind[T]) refer(uid, namespace string, was, now []string) {
	if slices.Equal(was, now) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range was {
		if _, still := slices.BinarySearch(now, name); !still {
			k.release(uid, cache.Key{Namespace: namespace, Name: name})
		}
	}
	for _, name := range now {
		if _, already := slices.BinarySearch(was, name); already {
			continue
		}
		key := cache.Key{Namespace: namespace, Name: name}
		f := k.followers[key]
		if f == nil {
			if k.followers == nil {
				k.followers = make(map[cache.Key]*follower[T])
			}
			f = &follower[T]{kind: k, key: key}
			k.followers[key] = f
		}
		f.acquire(uid)
	}
}

// release drops a pod's reference, and with the last one what is known of the object. The caller holds the lock.
func (k *kind[T]) release(uid string, key cache.Key) {
	f := k.followers[key]
	if f == nil || !f.release(uid) {
		return
	}
	delete(k.followers, key)
	if len(k.followers) == 0 {
		k.followers = nil
	}
}

// lookup returns what follows an object, nil when no pod refers to it.
func (k *kind[T]) lookup(namespace, name string) *follower[T] {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.followers[cache.Key{Namespace: namespace, Name: name}]
}

func (f *follower[T]) acquire(uid string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.uids = append(f.uids, uid)
	if f.cancel == nil {
		f.asked = nil // what has settled may have been made anew since: the new pod's first read looks
	}
}

// release returns true when no pod is left.
func (f *follower[T]) release(uid string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.uids = slices.DeleteFunc(f.uids, func(u string) bool { return u == uid })
	if len(f.uids) > 0 {
		return false
	}
	f.end()
	f.err = errForgotten
	f.answered()
	return true
}

// end ends the watch. The caller holds the lock.
func (f *follower[T]) end() {
	if f.cancel != nil {
		f.cancel()
		f.cancel = nil
	}
}

// answered lets those go on who wait for the first answer; it returns whether they had gone on already. The caller
// holds the lock.
func (f *follower[T]) answered() bool {
	if f.asked == nil {
		f.asked = make(chan struct{})
	}
	select {
	case <-f.asked:
		return true
	default:
		close(f.asked)
		return false
	}
}

// get returns the object as it is known. It begins to follow it, if need be, and then waits for an answer.
func (f *follower[T]) get(ctx context.Context) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, f.kind.cfg.Patience, errSilent)
	defer cancel()
	select {
	case <-f.ask():
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var none T
	switch {
	case f.known && f.object != none:
		return f.object, nil
	case f.known:
		return none, apierrors.NewNotFound(f.kind.kind, f.key.Name)
	case f.err != nil:
		return none, f.err
	default:
		return none, fmt.Errorf("%s %q cannot be read: %w", f.kind.kind.Resource(), f.key, context.Cause(ctx))
	}
}

// ask sees to it that the object is followed, or has been read when it cannot change, and returns what is closed once
// there is an answer.
func (f *follower[T]) ask() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asked != nil {
		return f.asked
	}
	f.asked = make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	f.kind.cfg.Spawn(func(agent context.Context) {
		defer context.AfterFunc(agent, cancel)()
		f.follow(ctx)
	})
	return f.asked
}

// follow watches the object until ctx ends.
func (f *follower[T]) follow(ctx context.Context) {
	var found T
	synced := false
	learn := func(o T) {
		if found = o; synced {
			f.learn(ctx, found)
		}
	}
	c := cache.New(cache.Config[T]{
		Source:    f.kind.source,
		Namespace: f.key.Namespace, FieldSelector: "metadata.name=" + f.key.Name,
		OnLost: func(err error) { f.lost(ctx, err) },
	})
	c.AddHandler(cache.Handler[T]{
		OnAdd: learn, OnUpdate: func(_, o T) { learn(o) },
		OnDelete: func(T) {
			var none T
			learn(none)
		},
		OnSync: func() {
			synced = true
			f.learn(ctx, found)
		},
	})
	_ = c.Run(ctx) // it ends with ctx only
}

// learn takes what the watch of ctx shows: no object when o is nil.
func (f *follower[T]) learn(ctx context.Context, o T) {
	f.mu.Lock()
	if ctx.Err() != nil { // another watch may have begun since
		f.mu.Unlock()
		return
	}
	var none T
	changed := f.known && (f.object == none) != (o == none) ||
		f.known && o != none && !f.kind.same(f.object, o)
	f.object, f.err = o, nil
	gone := f.answered()
	changed = changed || gone && !f.known
	f.known = true
	if o != none && o.GetImmutable() {
		f.end()
	}
	uids := slices.Clone(f.uids)
	f.mu.Unlock()
	if changed {
		f.kind.cfg.OnChange(uids)
	}
}

// lost takes note that the watch of ctx has ended; it will begin again.
func (f *follower[T]) lost(ctx context.Context, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return
	}
	f.err = apierrors.From(err)
	f.answered()
}

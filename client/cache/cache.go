package cache

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"monoplane.dev/object"
)

// Key names an object; Namespace is empty for cluster-scoped kinds.
type Key struct{ Namespace, Name string }

// String returns "namespace/name", or the name alone.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// KeyOf returns the key of o.
func KeyOf(o object.Object) Key {
	m := o.GetMetadata()
	return Key{m.GetNamespace(), m.GetName()}
}

// Config describes a cache.
type Config[T object.Object] struct {
	// Source is where the objects come from.
	Source Source[T]
	// Namespace, LabelSelector and FieldSelector restrict what is watched; empty for everything.
	Namespace, LabelSelector, FieldSelector string
	// Indexes are named functions that return the values under which ByIndex finds an object.
	Indexes map[string]func(T) []string
	// MinBackoff and MaxBackoff bound the wait before a lost watch is tried again; 100 ms and 10 s by default.
	MinBackoff, MaxBackoff time.Duration
	// Seed makes the jitter repeatable; 0 picks one.
	Seed uint64
	// Logger is told about lost watches; nil discards.
	Logger *slog.Logger
	// OnLost is told, on the cache's goroutine, why a watch has ended, each time before it is tried again; nil tells
	// nobody. That a server ends a watch once in a while is io.EOF.
	OnLost func(err error)
}

// Handler is told about changes. Functions may be nil. They run on the cache's goroutine and must not block.
type Handler[T object.Object] struct {
	OnAdd    func(o T)
	OnUpdate func(old, o T)
	// OnDelete gets the last state known: the one that the deletion event carried, or the one in the cache when the
	// event was missed.
	OnDelete func(o T)
	// OnSync is called once, when the first complete state has been handled.
	OnSync func()
}

// Cache is the copy. Run feeds it; all other methods may be called at any time from any goroutine.
type Cache[T object.Object] struct {
	cfg Config[T]
	// initial is the complete state while it is being read, nil otherwise. It belongs to Run.
	initial map[Key]T

	// dispatch orders changes and their handlers against AddHandler.
	dispatch sync.Mutex
	handlers []Handler[T]

	mu       sync.RWMutex
	objects  map[Key]T
	indexes  map[string]map[string]map[Key]T
	revision uint64        // the newest revision that the content reflects
	advanced chan struct{} // closed when revision grows; made by who waits
	synced   chan struct{} // closed after the first complete state was handled
}

// New returns an empty cache.
func New[T object.Object](cfg Config[T]) *Cache[T] {
	c := &Cache[T]{
		cfg:     cfg,
		objects: map[Key]T{},
		indexes: make(map[string]map[string]map[Key]T, len(cfg.Indexes)),
		synced:  make(chan struct{}),
	}
	c.cfg.Indexes = make(map[string]func(T) []string, len(cfg.Indexes))
	for name, of := range cfg.Indexes {
		c.AddIndex(name, of)
	}
	return c
}

// AddIndex adds an index to those of the configuration, with what is in the cache already; one of the name that there
// is stays as it is.
func (c *Cache[T]) AddIndex(name string, of func(T) []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.indexes[name]; ok {
		return
	}
	c.cfg.Indexes[name], c.indexes[name] = of, map[string]map[Key]T{}
	for k, o := range c.objects {
		c.file(name, of, k, o)
	}
}

// AddHandler adds a handler. It is first told about everything that is in the cache, as additions.
func (c *Cache[T]) AddHandler(h Handler[T]) {
	c.dispatch.Lock()
	defer c.dispatch.Unlock()
	if h.OnAdd != nil {
		for _, o := range c.List("", nil) {
			h.OnAdd(o)
		}
	}
	if h.OnSync != nil && c.HasSynced() {
		h.OnSync()
	}
	c.handlers = append(c.handlers, h)
}

// Get returns an object, and whether it is there.
func (c *Cache[T]) Get(namespace, name string) (T, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	o, ok := c.objects[Key{namespace, name}]
	return o, ok
}

// List returns the objects of a namespace (empty for all) whose labels match (nil for all), in no order.
func (c *Cache[T]) List(namespace string, selector labels.Selector) []T {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out []T
	if namespace == "" && selector == nil {
		out = make([]T, 0, len(c.objects))
	}
	for k, o := range c.objects {
		if namespace != "" && k.Namespace != namespace {
			continue
		}
		if selector != nil && !selector.Matches(labels.Set(o.GetMetadata().GetLabels())) {
			continue
		}
		out = append(out, o)
	}
	return out
}

// ByIndex returns the objects that the named index files under value, in no order. It panics when there is no index of
// the name.
func (c *Cache[T]) ByIndex(index, value string) []T {
	c.mu.RLock()
	defer c.mu.RUnlock()
	values, ok := c.indexes[index]
	if !ok {
		panic("cache: there is no index " + index)
	}
	found := values[value]
	out := make([]T, 0, len(found))
	for _, o := range found {
		out = append(out, o)
	}
	return out
}

// Len returns the number of objects.
func (c *Cache[T]) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.objects)
}

// HasSynced says whether the first complete state has been read and handled.
func (c *Cache[T]) HasSynced() bool {
	select {
	case <-c.synced:
		return true
	default:
		return false
	}
}

// WaitForSync waits until HasSynced or until ctx ends.
func (c *Cache[T]) WaitForSync(ctx context.Context) error {
	select {
	case <-c.synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

package workloads

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// Observer watches a namespace.
type Observer struct {
	bounds []bound

	mu      sync.Mutex
	state   *state
	reached map[string]bool
	broken  map[string]bool
	// versions counts what was seen.
	versions int
}

// Observer returns one for this scenario.
func (s *Scenario) Observer() *Observer {
	return &Observer{bounds: s.bounds, state: newState(), reached: map[string]bool{}, broken: map[string]bool{}}
}

// source lists and watches one kind.
type source struct {
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// api is what client-go has for a kind.
type api[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

func sourceOf[L runtime.Object](a api[L]) source {
	list := func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) { return a.List(ctx, opts) }
	return source{list: list, watch: a.Watch}
}

// Run watches until ctx ends. It says on ready that all has been listed.
func (o *Observer) Run(ctx context.Context, c kubernetes.Interface, namespace string, ready func()) {
	core, apps, batch := c.CoreV1(), c.AppsV1(), c.BatchV1()
	all := []source{
		sourceOf(core.Pods(namespace)), sourceOf(core.ReplicationControllers(namespace)),
		sourceOf(core.PersistentVolumeClaims(namespace)), sourceOf(core.Events(namespace)),
		sourceOf(apps.Deployments(namespace)), sourceOf(apps.ReplicaSets(namespace)),
		sourceOf(apps.StatefulSets(namespace)), sourceOf(apps.DaemonSets(namespace)),
		sourceOf(apps.ControllerRevisions(namespace)), sourceOf(batch.Jobs(namespace)),
		sourceOf(batch.CronJobs(namespace)), sourceOf(c.AutoscalingV2().HorizontalPodAutoscalers(namespace)),
	}
	var running, listed sync.WaitGroup
	listed.Add(len(all))
	for _, s := range all {
		running.Go(func() {
			once := sync.OnceFunc(listed.Done)
			defer once()
			for ctx.Err() == nil {
				if err := o.follow(ctx, s, once); err != nil {
					select { // the server may be away
					case <-time.After(100 * time.Millisecond):
					case <-ctx.Done():
					}
				}
			}
		})
	}
	listed.Wait()
	ready()
	running.Wait()
}

// follow lists a kind and then watches it until the watch ends.
func (o *Observer) follow(ctx context.Context, s source, listed func()) error {
	list, err := s.list(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	o.relisted(list, items)
	listed()
	at, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	w, err := s.watch(ctx, metav1.ListOptions{ResourceVersion: at.GetResourceVersion()})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			break
		}
		o.saw(e.Object, e.Type == watch.Deleted)
	}
	return errors.New("the watch has ended")
}

// relisted notes all objects of a kind that there are: the others are gone.
func (o *Observer) relisted(list runtime.Object, items []runtime.Object) {
	there := make(map[string]bool)
	for _, item := range items {
		if it, err := meta.Accessor(item); err == nil {
			there[keyOf(it)] = true
		}
		o.saw(item, false)
	}
	of := strings.TrimSuffix(fmt.Sprintf("%T", list), "List")
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, was := range o.state.objects {
		if fmt.Sprintf("%T", was) == of && !there[key] {
			o.versions++
			o.state.saw(was, true)
		}
	}
}

func (o *Observer) saw(object runtime.Object, gone bool) {
	it, err := meta.Accessor(object)
	if err != nil {
		return // a bookmark without an object
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.versions++
	o.state.saw(it, gone)
	for _, b := range o.state.breaks(o.bounds, o.reached) {
		o.broken[b] = true
	}
}

// look returns what is to be seen; nil when nothing has happened since a look that found the same number of versions.
func (o *Observer) look(since int) (lines map[string]string, versions int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.versions == since {
		return nil, since
	}
	return o.state.lines(), o.versions
}

// told returns the events since the last call.
func (o *Observer) told() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.state.told()
}

// Broken returns which bounds did not hold, nil for none.
func (o *Observer) Broken() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var errs []error
	for _, b := range slices.Sorted(maps.Keys(o.broken)) {
		errs = append(errs, errors.New(b))
	}
	return errors.Join(errs...)
}

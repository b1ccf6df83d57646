package clientgo_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// follower is what an informer's handler has been told: the revision of each object that is there.
type follower struct {
	t    *testing.T
	name string
	mu   sync.Mutex
	have map[string]uint64
	told int
}

func revision(t *testing.T, o metav1.Object) uint64 {
	rv, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		t.Errorf("%s has the revision %q", o.GetName(), o.GetResourceVersion())
	}
	return rv
}

// handler checks that no event comes twice, too late or for an object of which the one before was not told.
func (f *follower) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			cm := o.(*corev1.ConfigMap)
			f.mu.Lock()
			defer f.mu.Unlock()
			if rv, ok := f.have[cm.Name]; ok {
				f.t.Errorf("%s: %s was added at %s, though it is there since %d", f.name, cm.Name, cm.ResourceVersion, rv)
			}
			f.have[cm.Name] = revision(f.t, cm)
			f.told++
		},
		UpdateFunc: func(before, o any) {
			was, cm := before.(*corev1.ConfigMap), o.(*corev1.ConfigMap)
			if was.ResourceVersion == cm.ResourceVersion {
				return // what a new list repeats
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if rv := revision(f.t, cm); f.have[cm.Name] != revision(f.t, was) || rv <= f.have[cm.Name] {
				f.t.Errorf("%s: %s changed from %s to %s, and was at %d", f.name, cm.Name, was.ResourceVersion, cm.ResourceVersion,
					f.have[cm.Name])
			}
			f.have[cm.Name] = revision(f.t, cm)
			f.told++
		},
		DeleteFunc: func(o any) {
			if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = unknown.Obj
			}
			cm := o.(*corev1.ConfigMap)
			f.mu.Lock()
			defer f.mu.Unlock()
			if _, ok := f.have[cm.Name]; !ok {
				f.t.Errorf("%s: %s was deleted, and was not there", f.name, cm.Name)
			}
			delete(f.have, cm.Name)
			f.told++
		},
	}
}

func (f *follower) seen() (map[string]uint64, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.have), f.told
}

// writer makes random writes, and knows what came of them: what is there, and how many writes there were.
type writer struct {
	r      *rand.Rand
	client kubernetes.Interface
	have   map[string]uint64
	writes int
}

func (w *writer) write(t *testing.T) {
	ctx, api := t.Context(), w.client.CoreV1().ConfigMaps("default")
	name := fmt.Sprint("m", w.r.IntN(12))
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"n": fmt.Sprint(w.writes)}}
	var err error
	switch _, there := w.have[name]; {
	case !there:
		o, err = api.Create(ctx, o, metav1.CreateOptions{})
	case w.r.IntN(3) == 0:
		o, err = nil, api.Delete(ctx, name, metav1.DeleteOptions{})
	default:
		o, err = api.Update(ctx, o, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	w.writes++
	if o == nil {
		delete(w.have, name)
	} else {
		w.have[name] = revision(t, o)
	}
}

// An informer sees every write, in order and once, as long as it is connected, and after whatever has happened what is
// there: broken connections, a server that is started again, and so much time without connection that the history it
// knew is gone.
//
// spec: OBJ-7
func TestInformers(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		w := &writer{r: rand.New(rand.NewPCG(seed, 0)), client: s.client(false), have: map[string]uint64{}}
		var followers []*follower
		for _, protobuf := range []bool{false, true} {
			f := &follower{t: t, name: fmt.Sprintf("protobuf %v", protobuf), have: map[string]uint64{}}
			factory := informers.NewSharedInformerFactoryWithOptions(s.client(protobuf), 0, informers.WithNamespace("default"),
				informers.WithTweakListOptions(func(o *metav1.ListOptions) {
					o.FieldSelector = "metadata.name!=kube-root-ca.crt"
				}))
			informer := factory.Core().V1().ConfigMaps().Informer()
			if _, err := informer.AddEventHandler(f.handler()); err != nil {
				t.Fatal(err)
			}
			factory.Start(ctx.Done())
			defer factory.Shutdown()
			defer stop()
			if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
				t.Fatal("no sync")
			}
			followers = append(followers, f)
		}
		uptodate := func(what string) {
			t.Helper()
			for _, f := range followers {
				synctest.Wait()
				for tries := 0; ; tries++ {
					have, _ := f.seen()
					if maps.Equal(have, w.have) {
						break
					}
					if tries == 600 {
						t.Fatalf("%s has, ten minutes after %s, %v, and there is %v", f.name, what, have, w.have)
					}
					time.Sleep(time.Second)
				}
			}
		}
		// While nothing breaks, each write is one event.
		for range 100 {
			w.write(t)
		}
		uptodate("writes")
		for _, f := range followers {
			if _, told := f.seen(); told != w.writes {
				t.Errorf("%s was told %d events of %d writes", f.name, told, w.writes)
			}
		}
		for range 12 {
			what := []string{"cut connections", "a restart", "an hour without a server"}[w.r.IntN(3)]
			for range w.r.IntN(10) {
				w.write(t)
			}
			switch what {
			case "cut connections":
				s.cut()
			case "a restart":
				s.restart()
			default:
				s.down()
				time.Sleep(time.Hour)
				s.up()
				w.write(t)
				time.Sleep(20 * time.Minute) // the history of before is compacted
			}
			for range w.r.IntN(10) {
				w.write(t)
			}
			uptodate(what)
		}
	})
}

// Who asks for what was before the history that is kept is told so in the words of Kubernetes, in the way that
// informers and pagers list again for.
//
// spec: OBJ-6, OBJ-7
func TestCompacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		api := s.client(false).CoreV1().ConfigMaps("default")
		var before string
		for _, name := range []string{"a", "b"} {
			o, err := api.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
				metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			before = o.ResourceVersion
		}
		first, err := api.List(t.Context(), metav1.ListOptions{Limit: 1})
		if err != nil || first.Continue == "" {
			t.Fatalf("a list of one: %v, %v", first, err)
		}
		for range 30 {
			time.Sleep(time.Minute)
			if _, err := api.Update(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"},
				Data: map[string]string{"at": time.Now().String()}}, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		s.restart() // what a cache still has is no history
		list := func(opts metav1.ListOptions) error {
			_, err := api.List(t.Context(), opts)
			return err
		}
		w, err := api.Watch(t.Context(), metav1.ListOptions{ResourceVersion: before})
		if err == nil {
			e := <-w.ResultChan()
			w.Stop()
			err = apierrors.FromObject(e.Object)
		}
		for _, x := range []struct {
			what  string
			err   error
			words string // up to the revision that is kept
		}{
			{"a watch", err, "too old resource version: " + before + " ("},
			{"an exact list", list(metav1.ListOptions{ResourceVersion: before, ResourceVersionMatch: "Exact"}),
				"The resourceVersion for the provided list is too old."},
			{"a page at a revision", list(metav1.ListOptions{ResourceVersion: before, Limit: 1}),
				"The resourceVersion for the provided list is too old."},
			{"the rest of a list", list(metav1.ListOptions{Continue: first.Continue, Limit: 1}),
				"The provided continue parameter is too old to display a consistent list result. You can start a new list " +
					"without the continue parameter, or use the continue token in this response to retrieve the remainder of " +
					"the results. Continuing with the provided token results in an inconsistent list - objects that were " +
					"created, modified, or deleted between the time the first chunk was returned and now may show up in the " +
					"list."},
		} {
			var refused apierrors.APIStatus
			if !errors.As(x.err, &refused) {
				t.Errorf("%s of half an hour ago: %v", x.what, x.err)
				continue
			}
			got := refused.Status()
			message := got.Message
			if strings.HasSuffix(x.words, "(") && strings.HasPrefix(message, x.words) {
				message = x.words
			}
			if rest := got.Continue; x.what == "the rest of a list" {
				if err := list(metav1.ListOptions{Continue: rest, Limit: 1}); err != nil {
					t.Errorf("the rest of a list as it is now: %v", err)
				}
				got.ListMeta = metav1.ListMeta{}
			}
			got.TypeMeta, got.Message = metav1.TypeMeta{}, message
			if want := apierrors.NewResourceExpired(x.words).ErrStatus; !reflect.DeepEqual(got, want) {
				t.Errorf("%s of half an hour ago: %+v, want %+v", x.what, got, want)
			}
		}
	})
}

// How long the pages of a list show one revision does not depend on how much of the kind changes.
//
// spec: OBJ-6
func TestPagesOfWhatDoesNotChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		api := s.client(false).CoreV1().ConfigMaps("quiet")
		if _, err := s.client(false).CoreV1().Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "quiet"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // until the namespace has what each has
		first, err := api.List(t.Context(), metav1.ListOptions{})
		if err != nil || len(first.Items) != 1 {
			t.Fatalf("what a namespace has: %v, %v", first, err)
		}
		if _, err := api.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "z"}},
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if first, err = api.List(t.Context(), metav1.ListOptions{Limit: 1}); err != nil {
			t.Fatal(err)
		}
		rest := metav1.ListOptions{Limit: 1, Continue: first.Continue}
		exact := metav1.ListOptions{ResourceVersion: first.ResourceVersion, ResourceVersionMatch: "Exact"}
		time.Sleep(4 * time.Minute)
		for _, opts := range []metav1.ListOptions{rest, exact} {
			if list, err := api.List(t.Context(), opts); err != nil || list.ResourceVersion != first.ResourceVersion {
				t.Errorf("%+v after four minutes: %v, %v", opts, list, err)
			}
		}
		time.Sleep(4 * time.Minute)
		if list, err := api.List(t.Context(), exact); !apierrors.IsResourceExpired(err) {
			t.Errorf("an exact list after eight minutes: %v, %v", list, err)
		}
		var refused apierrors.APIStatus
		if list, err := api.List(t.Context(), rest); !apierrors.IsResourceExpired(err) || !errors.As(err, &refused) {
			t.Fatalf("the rest of a list after eight minutes: %v, %v", list, err)
		}
		rest.Continue = refused.Status().Continue
		list, err := api.List(t.Context(), rest)
		if err != nil || len(list.Items) != 1 || list.Items[0].Name != "z" || list.ResourceVersion == first.ResourceVersion {
			t.Errorf("the rest of a list as it is now: %v, %v", list, err)
		}
	})
}

package nodeagent_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
)

func (w *world) service(namespace, name, clusterIP string) {
	w.t.Helper()
	_, err := w.c.Services.Create(w.t.Context(), &corev1rpc.CreateServiceRequest{Namespace: namespace,
		Object: &corev1.Service{Metadata: &metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: &corev1.ServiceSpec{ClusterIP: clusterIP, Ports: []*corev1.ServicePort{{Port: 80}}}}})
	if err != nil {
		w.t.Fatal(err)
	}
}

// linked returns by what variables the newest container of a pod knows Services, as NAME=VALUE.
func (r *watched) linked(pod string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, v := range r.made[pod].GetEnvs() {
		if strings.HasSuffix(v.GetKey(), "_SERVICE_HOST") {
			out = append(out, v.GetKey()+"="+string(v.GetValue()))
		}
	}
	return out
}

// A container knows the Services of its namespace that were there when its pod was made, and after a restart those
// that are there then. The agent asks once for each start, and not at all for pods that want none.
//
// spec: LIFE-8
func TestServiceLinks(t *testing.T) {
	inWatchedWorld(t, func(w *world, rt *watched, _ *logBuffer) {
		w.start()
		w.service("default", "web", "10.96.0.7")
		w.service("default", "headless", "None")
		w.service("kube-system", "elsewhere", "10.96.0.8")
		w.create("a", annotated("exit-after", "5s"))
		w.create("none", edit(func(p *corev1.Pod) { p.Spec.EnableServiceLinks = new(bool) }))
		w.settle()
		w.phase("none", "Running")
		if got, want := rt.linked("a"), []string{"WEB_SERVICE_HOST=10.96.0.7"}; !slices.Equal(got, want) {
			t.Errorf("the first container knows %v, want %v", got, want)
		}
		if n := w.api.Calls(corev1rpc.Services_List_FullMethodName); n != 1 {
			t.Errorf("the agent has asked %d times", n)
		}
		w.service("default", "late", "10.96.0.9")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		want := []string{"LATE_SERVICE_HOST=10.96.0.9", "WEB_SERVICE_HOST=10.96.0.7"}
		if got := rt.linked("a"); !slices.Equal(got, want) {
			t.Errorf("after its restart it knows %v, want %v", got, want)
		}
		if got := rt.linked("none"); len(got) != 0 {
			t.Errorf("who wants no Services knows %v", got)
		}
		if n := w.api.Calls(corev1rpc.Services_Watch_FullMethodName); n != 0 {
			t.Errorf("%d watches", n)
		}
	})
}

// While the Services cannot be read, containers wait, say why, and are tried again; those of static pods start.
//
// spec: LIFE-8, STATIC-1
func TestContainersWaitForServices(t *testing.T) {
	inWatchedWorld(t, func(w *world, rt *watched, _ *logBuffer) {
		write := withManifests(w)
		write("web.yaml", manifest)
		w.service("default", "web", "10.96.0.7")
		w.api.React(func(_ context.Context, method string, _ any) error {
			if method == corev1rpc.Services_List_FullMethodName {
				return apierrors.New(apierrors.ServiceUnavailable, "the Services are being counted")
			}
			return nil
		})
		w.start()
		w.create("a")
		w.settle()
		w.waitsFor("a", "CreateContainerConfigError",
			"failed to list services when setting up env vars: the Services are being counted")
		w.phase(staticName, "Running")
		w.api.React(nil)
		time.Sleep(time.Minute)
		w.phase("a", "Running")
		if got, want := rt.linked("a"), []string{"WEB_SERVICE_HOST=10.96.0.7"}; !slices.Equal(got, want) {
			t.Errorf("it knows %v, want %v", got, want)
		}
	})
}

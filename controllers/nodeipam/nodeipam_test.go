package nodeipam_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/nodeipam"
	"monoplane.dev/controllers/test/controllertest"
	"monoplane.dev/object"
	"monoplane.dev/rules/podrange"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inWorld runs the controller on a server.
func inWorld(t *testing.T, ranges string, f func(t *testing.T, c *client.Client)) {
	t.Helper()
	onServer(t, ranges, func(t *testing.T, s *apitest.Server) { f(t, s.Admin()) })
}

// onServer is inWorld for tests that put faults between the controller and the server.
func onServer(t *testing.T, ranges string, f func(t *testing.T, s *apitest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := apitest.Start(t)
		shared := controller.NewShared(s.Controller(controller.SharedRole().Name), nil)
		var parsed []podrange.Cluster
		if ranges != "" {
			var err error
			parsed, err = podrange.Parse(ranges, 0, 0, nil)
			must(t, err)
		}
		ipam, err := nodeipam.New(nodeipam.Config{Client: s.Controller("node-ipam"), Shared: shared, Ranges: parsed})
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- controllertest.Run(ctx, shared, ipam) }()
		synctest.Wait()
		must(t, ipam.Ready())
		f(t, s)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
	})
}

func create(t *testing.T, c *client.Client, name string, has ...string) {
	t.Helper()
	n := &corev1.Node{Metadata: &metav1.ObjectMeta{Name: name}, Spec: &corev1.NodeSpec{PodCIDRs: has}}
	if len(has) > 0 {
		n.Spec.PodCIDR = has[0]
	}
	_, err := c.Nodes.Create(t.Context(), &corev1rpc.CreateNodeRequest{Object: n})
	must(t, err)
}

func ranges(t *testing.T, c *client.Client, name string) string {
	t.Helper()
	synctest.Wait()
	n, err := c.Nodes.Get(t.Context(), &metav1.GetRequest{Name: name})
	must(t, err)
	if all := n.GetSpec().GetPodCIDRs(); len(all) > 0 && all[0] != n.GetSpec().GetPodCIDR() {
		t.Errorf("podCIDR of %s is %s, podCIDRs are %v", name, n.GetSpec().GetPodCIDR(), all)
	}
	return fmt.Sprint(n.GetSpec().GetPodCIDRs())
}

// spec: NET-1
func TestRanges(t *testing.T) {
	inWorld(t, "10.244.0.0/22,fd00:244::/56", func(t *testing.T, c *client.Client) {
		create(t, c, "has", "10.244.0.0/24", "fd00:244:0:1::/64")
		for i, want := range []string{"[10.244.1.0/24 fd00:244::/64]", "[10.244.2.0/24 fd00:244:0:2::/64]",
			"[10.244.3.0/24 fd00:244:0:3::/64]", "[]", "[]"} {
			create(t, c, fmt.Sprint("n", i))
			if got := ranges(t, c, fmt.Sprint("n", i)); got != want {
				t.Errorf("node %d has %s; want %s", i, got, want)
			}
		}
		if got := ranges(t, c, "has"); got != "[10.244.0.0/24 fd00:244:0:1::/64]" {
			t.Errorf("the node that had a range has %s", got)
		}
		// Who waits gets what a deleted node had.
		_, err := c.Nodes.Delete(t.Context(), &metav1.DeleteRequest{Name: "n1"})
		must(t, err)
		got := []string{ranges(t, c, "n3"), ranges(t, c, "n4")}
		slices.Sort(got)
		if fmt.Sprint(got) != "[[10.244.2.0/24 fd00:244:0:2::/64] []]" {
			t.Errorf("after a deletion the waiting nodes have %v", got)
		}
	})
}

// Many nodes at once, of which each gets what no other has.
func TestManyAtOnce(t *testing.T) {
	inWorld(t, "10.244.0.0/16", func(t *testing.T, c *client.Client) {
		for i := range 100 {
			create(t, c, fmt.Sprint("n", i))
		}
		owner := map[string]string{}
		for i := range 100 {
			name := fmt.Sprint("n", i)
			got := ranges(t, c, name)
			if other := owner[got]; got == "[]" || other != "" {
				t.Errorf("%s and %s have %s", other, name, got)
			}
			owner[got] = name
		}
	})
}

// A node that somebody else writes between the controller's reading and its writing keeps what they wrote, and what
// the controller would have given it is given once.
//
// spec: NET-1
func TestAnotherWriterIsFirst(t *testing.T) {
	change := func(t *testing.T, c *client.Client, f func(n *corev1.Node)) {
		n, err := c.Nodes.Get(t.Context(), &metav1.GetRequest{Name: "a"})
		must(t, err)
		n = object.Clone(n)
		f(n)
		_, err = c.Nodes.Update(t.Context(), &corev1rpc.UpdateNodeRequest{Object: n})
		must(t, err)
	}
	for name, c := range map[string]struct {
		write func(t *testing.T, c *client.Client)
		a, b  string
	}{
		"it gets a range": {func(t *testing.T, c *client.Client) {
			change(t, c, func(n *corev1.Node) {
				n.Spec.PodCIDR, n.Spec.PodCIDRs = "10.244.5.0/24", []string{"10.244.5.0/24"}
			})
		}, "[10.244.5.0/24]", "[10.244.0.0/24]"},
		"it gets the next node's": {func(t *testing.T, c *client.Client) {
			change(t, c, func(n *corev1.Node) {
				n.Spec.PodCIDR, n.Spec.PodCIDRs = "10.244.1.0/24", []string{"10.244.1.0/24"}
			})
		}, "[10.244.1.0/24]", "[10.244.0.0/24]"},
		"it gets a label": {func(t *testing.T, c *client.Client) {
			change(t, c, func(n *corev1.Node) { n.Metadata.Labels = map[string]string{"disk": "fast"} })
		}, "[10.244.0.0/24]", "[10.244.1.0/24]"},
		"it is made anew": {func(t *testing.T, c *client.Client) {
			_, err := c.Nodes.Delete(t.Context(), &metav1.DeleteRequest{Name: "a"})
			must(t, err)
			create(t, c, "a")
		}, "[10.244.0.0/24]", "[10.244.1.0/24]"},
	} {
		t.Run(name, func(t *testing.T) {
			onServer(t, "10.244.0.0/16", func(t *testing.T, s *apitest.Server) {
				var once sync.Once
				s.React(func(_ context.Context, method string, _ any) error {
					if method == corev1rpc.Nodes_Update_FullMethodName {
						once.Do(func() {
							s.React(nil)
							c.write(t, s.Admin())
						})
					}
					return nil
				})
				create(t, s.Admin(), "a")
				time.Sleep(time.Minute) // The controller tries again after a while.
				create(t, s.Admin(), "b")
				if a, b := ranges(t, s.Admin(), "a"), ranges(t, s.Admin(), "b"); a != c.a || b != c.b {
					t.Errorf("the nodes have %s and %s; want %s and %s", a, b, c.a, c.b)
				}
				n, err := s.Admin().Nodes.Get(t.Context(), &metav1.GetRequest{Name: "a"})
				must(t, err)
				if name == "it gets a label" && n.GetMetadata().GetLabels()["disk"] != "fast" {
					t.Errorf("the labels are %v", n.GetMetadata().GetLabels())
				}
			})
		})
	}
}

// What a node may have been given by a write whose answer was lost is given to no other, though the controller does
// not see for a while what nodes have.
//
// spec: NET-1
func TestAnswerIsLost(t *testing.T) {
	onServer(t, "10.244.0.0/16", func(t *testing.T, s *apitest.Server) {
		see := make(chan struct{})
		s.After(func(_ context.Context, method string, _, _ any) error {
			if method != corev1rpc.Nodes_Update_FullMethodName {
				return nil
			}
			s.After(nil)
			return apierrors.New(apierrors.ServiceUnavailable, "the answer was lost")
		})
		held := make(chan struct{})
		var once sync.Once
		s.React(func(_ context.Context, method string, _ any) error {
			switch method {
			case corev1rpc.Nodes_Update_FullMethodName:
				once.Do(func() { <-held })
			case corev1rpc.Nodes_Watch_FullMethodName:
				<-see
			}
			return nil
		})
		create(t, s.Admin(), "a")
		create(t, s.Admin(), "b")
		synctest.Wait() // Both are known to the controller, which is about to write the first.
		s.Cut()
		synctest.Wait()
		close(held)
		a, b := ranges(t, s.Admin(), "a"), ranges(t, s.Admin(), "b")
		if a != "[10.244.0.0/24]" || b != "[10.244.1.0/24]" {
			t.Errorf("while nobody is told what nodes have, they have %s and %s", a, b)
		}
		close(see)
		time.Sleep(time.Minute)
		create(t, s.Admin(), "c")
		if c := ranges(t, s.Admin(), "c"); c != "[10.244.2.0/24]" {
			t.Errorf("afterwards a node gets %s", c)
		}
	})
}

func TestNothingWithoutRanges(t *testing.T) {
	inWorld(t, "", func(t *testing.T, c *client.Client) {
		create(t, c, "n")
		if got := ranges(t, c, "n"); got != "[]" {
			t.Errorf("the node was given %s", got)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

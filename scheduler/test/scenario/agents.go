package scenario

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
	schedulingv1rpc "monoplane.dev/api/scheduling/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
)

// Classify makes the class that gives a pod its priority, which no pod may state by itself.
func Classify(t testing.TB, c *client.Client, p *corev1.Pod) {
	t.Helper()
	if p.Spec.Priority == nil && p.Spec.PreemptionPolicy == nil {
		return
	}
	class := &schedulingv1.PriorityClass{Value: p.Spec.GetPriority(), PreemptionPolicy: p.Spec.PreemptionPolicy}
	p.Spec.PriorityClassName = strings.ToLower(fmt.Sprint("p", class.GetValue(), class.GetPreemptionPolicy()))
	class.Metadata = &metav1.ObjectMeta{Name: p.Spec.PriorityClassName}
	_, err := c.PriorityClasses.Create(context.Background(), &schedulingv1rpc.CreatePriorityClassRequest{Object: class})
	if err != nil && !apierrors.Is(err, apierrors.AlreadyExists) {
		t.Fatal(err)
	}
}

// Agents plays the nodes until stop is called: pods start as soon as they are bound, and end when their grace is over.
func Agents(t testing.TB, s *apitest.Server) (stop func()) {
	t.Helper()
	w := newPlayer(t, s)
	ctx, cancel := context.WithCancel(context.Background())
	watch, err := w.c.Pods.Watch(ctx, &metav1.WatchRequest{})
	w.must(nil, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for batch, err := watch.Recv(); err == nil; batch, err = watch.Recv() {
			for _, e := range batch.GetEvents() {
				if e.GetType() != string(object.Deleted) {
					w.attend(e.GetObject())
				}
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (w *player) attend(p *corev1.Pod) {
	m := p.GetMetadata()
	switch {
	case p.GetSpec().GetNodeName() == "":
	case m.GetDeletionTimestamp() != nil:
		time.AfterFunc(time.Duration(m.GetDeletionGracePeriodSeconds())*time.Second, func() {
			now := int64(0)
			_, err := w.c.Pods.Delete(context.Background(), &metav1.DeleteRequest{
				Namespace: m.GetNamespace(), Name: m.GetName(), GracePeriodSeconds: &now,
				Options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{Uid: &m.Uid}},
			})
			w.lateIsFine(err)
		})
	case p.GetStatus().GetStartTime() == nil:
		p = object.Clone(p)
		p.Status.Phase, p.Status.StartTime = "Running", value.Time(time.Now())
		_, err := w.c.Pods.UpdateStatus(context.Background(), &corev1rpc.UpdatePodRequest{Object: p})
		w.lateIsFine(err)
	}
}

// lateIsFine accepts that the pod has changed or gone meanwhile.
func (w *player) lateIsFine(err error) {
	if err != nil && !apierrors.Is(err, apierrors.NotFound) && !apierrors.Is(err, apierrors.Conflict) {
		w.Error(err)
	}
}

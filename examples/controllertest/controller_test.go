// Package controllertest tests a controller against a whole cluster (API server, scheduler, controllers, simulated
// nodes) in virtual time: ten minutes pass in milliseconds, and nothing has to be polled.
package controllertest

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"monoplane.dev"
)

// reconciler keeps a Deployment for each ConfigMap, with as many replicas as it says. While that is no number, it
// looks again every ten minutes.
type reconciler struct{ client.Client }

func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cm := &corev1.ConfigMap{}
	if err := r.Get(ctx, req.NamespacedName, cm); err != nil || cm.Labels["app"] == "" {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	n, err := strconv.ParseInt(cm.Data["replicas"], 10, 32)
	if err != nil {
		return ctrl.Result{RequeueAfter: 10 * time.Minute}, nil //nolint:nilerr // Trying again at once does not help.
	}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: cm.Name, Namespace: cm.Namespace}}
	_, err = ctrl.CreateOrUpdate(ctx, r, d, func() error {
		d.Spec.Replicas = new(int32(n))
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: cm.Labels}
		d.Spec.Template.Labels = cm.Labels
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "any"}}
		return ctrl.SetControllerReference(cm, d, r.Scheme())
	})
	return ctrl.Result{}, err
}

func TestReconciler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		check := func(err error) { require.NoError(t, err) }
		cluster, err := monoplane.Start(t.Context(), monoplane.Config{
			DataDir: t.TempDir(), Runtime: monoplane.FakeRuntime(), UnsafeNoFsync: true,
		})
		check(err)
		defer cluster.Stop(context.Background())
		config := &rest.Config{Host: "monoplane", Transport: cluster.Transport()}
		mgr, err := ctrl.NewManager(config, ctrl.Options{Metrics: server.Options{BindAddress: "0"},
			Controller: ctrlconfig.Controller{SkipNameValidation: new(true)}})
		check(err)
		check(ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(&reconciler{mgr.GetClient()}))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- mgr.Start(ctx) }()
		c := mgr.GetClient()
		cm := &corev1.ConfigMap{Data: map[string]string{"replicas": "three"}}
		cm.Name, cm.Namespace, cm.Labels = "web", "default", map[string]string{"app": "web"}
		check(c.Create(ctx, cm))
		time.Sleep(15 * time.Minute) // of the bubble: the controller has looked twice
		cm.Data["replicas"] = "3"
		check(c.Update(ctx, cm))
		time.Sleep(time.Minute)
		pods := &corev1.PodList{}
		check(mgr.GetAPIReader().List(ctx, pods, client.MatchingFields{"status.phase": "Running"}))
		require.Len(t, pods.Items, 3)
		stop()
		check(<-ended)
	})
}

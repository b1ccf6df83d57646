package apiserver_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver"
	"monoplane.dev/apiserver/admission/security"
	"monoplane.dev/apiserver/authn"

	appsv1 "monoplane.dev/api/apps/v1"
	appsv1rpc "monoplane.dev/api/apps/v1/rpc"
	batchv1 "monoplane.dev/api/batch/v1"
	batchv1rpc "monoplane.dev/api/batch/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

func podOfImage(name, image string) *corev1.Pod {
	p := newPod(name)
	p.Spec.Containers[0].Image = image
	return p
}

// Image "host" is privileged to the standards, whatever it is called and in whichever container.
//
// spec: OBJ-3
func TestHostImageIsPrivileged(t *testing.T) {
	c := start(t)
	create := func(p *corev1.Pod) ([]string, error) {
		return warned(func(header grpc.CallOption) error {
			return second(c.admin().Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: p}, header))
		})
	}
	const detail = `PodSecurity "baseline:latest": host image (container "main" must not have image "host")`
	if _, err := create(podOfImage("before", "host")); err != nil {
		t.Fatal(err)
	}
	texts, err := c.label(t, "enforce", "baseline", "audit", "baseline")
	if err != nil || !slices.Contains(texts, "before: host image") {
		t.Errorf("the pods that are there: %q, %v", texts, err)
	}
	for i, image := range []string{"host", "host:latest", "docker.io/library/host", "docker.io/library/host:latest"} {
		if _, err := create(podOfImage("a", image)); told(err) != `pods "a" is forbidden: violates `+detail {
			t.Errorf("%s: %v", image, err)
		}
		p := podOfImage("b", "nginx")
		p.Spec.InitContainers = podOfImage("", image).Spec.Containers
		p.Spec.InitContainers[0].Name = "first"
		if _, err := create(p); !strings.Contains(told(err), `container "first" must not have image "host"`) {
			t.Errorf("%s at first: %v", image, err)
		}
		if _, err := create(podOfImage(fmt.Sprint("c", i), "example.com/"+image)); err != nil {
			t.Errorf("another image of that name: %v", err)
		}
	}
	if log := c.log.String(); !strings.Contains(log, `host image (container`) {
		t.Errorf("nothing was noted: %s", log)
	}
	_, err = c.admin().Pods.Patch(ctx(t), &metav1.PatchRequest{Namespace: "default", Name: "c0",
		PatchType: "application/strategic-merge-patch+json",
		Patch:     []byte(`{"spec":{"containers":[{"name":"main","image":"host"}]}}`)})
	if !strings.Contains(told(err), detail) {
		t.Errorf("a change of the image: %v", err)
	}
	d := newDeployment("web")
	d.Spec.Template.Spec = newPod("").Spec
	texts, err = warned(func(header grpc.CallOption) error {
		return second(c.admin().Deployments.Create(ctx(t), &appsv1rpc.CreateDeploymentRequest{Object: d}, header))
	})
	if err != nil || !slices.Equal(texts, []string{"would violate " + detail}) {
		t.Errorf("a template: %q, %v", texts, err)
	}
	if _, err := c.label(t, "enforce", "restricted"); err != nil {
		t.Fatal(err)
	}
	if _, err := create(podOfImage("a", "host")); !strings.Contains(told(err), `must not have image "host"`) {
		t.Errorf("restricted: %v", err)
	}
}

// Who writes pods needs a right of its own to have the machine's files in them, by whatever kind, also where no
// standard is enforced and where he is exempt from them. What others have written goes on, and is scaled.
//
// spec: OBJ-15
func TestHostImageNeedsARight(t *testing.T) {
	c := start(t, func(cfg *apiserver.Config) { cfg.PodSecurity = security.Config{Users: []string{"jane"}} })
	jane := c.as(&authn.User{Name: "jane", Groups: []string{authn.AuthenticatedGroup}})
	c.grant("writer", "default", rule("*", " apps batch", "*"), person("jane"))
	admin := c.admin()
	host := func(name string) *appsv1.Deployment {
		d := newDeployment(name)
		d.Spec.Template.Spec = newPod("").Spec
		return d
	}
	d := must(admin.Deployments.Create(ctx(t), &appsv1rpc.CreateDeploymentRequest{Object: host("admins")}))(t)
	must(admin.Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: podOfImage("theirs", "nginx")}))(t)

	attempts := map[string]func() error{
		"pod": func() error {
			return second(jane.Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Namespace: "default", Object: newPod("a")}))
		},
		"image of a pod": func() error {
			return second(jane.Pods.Patch(ctx(t), &metav1.PatchRequest{Namespace: "default", Name: "theirs",
				PatchType: "application/strategic-merge-patch+json",
				Patch:     []byte(`{"spec":{"containers":[{"name":"main","image":"docker.io/library/host"}]}}`)}))
		},
		"ephemeral container": func() error {
			p := clone(must(admin.Pods.Get(ctx(t), &metav1.GetRequest{Namespace: "default", Name: "theirs"}))(t))
			p.Spec.EphemeralContainers = []*corev1.EphemeralContainer{{EphemeralContainerCommon: &corev1.
				EphemeralContainerCommon{Name: "debug", Image: "host", Command: []string{"sh"}}}}
			return second(jane.Pods.UpdateEphemeralContainers(ctx(t), &corev1rpc.UpdatePodRequest{
				Namespace: "default", Object: p,
			}))
		},
		"deployment": func() error {
			return second(jane.Deployments.Create(ctx(t), &appsv1rpc.CreateDeploymentRequest{
				Namespace: "default", Object: host("b"),
			}))
		},
		"command of a deployment": func() error {
			d := clone(d)
			d.Spec.Template.Spec.Containers[0].Command = []string{"sh"}
			return second(jane.Deployments.Update(ctx(t), &appsv1rpc.UpdateDeploymentRequest{
				Namespace: "default", Object: d,
			}))
		},
		"cron job": func() error {
			spec := newPod("").Spec
			spec.RestartPolicy = "Never"
			return second(jane.CronJobs.Create(ctx(t), &batchv1rpc.CreateCronJobRequest{
				Namespace: "default", Object: &batchv1.CronJob{
					Metadata: &metav1.ObjectMeta{Name: "c", Namespace: "default"},
					Spec: &batchv1.CronJobSpec{Schedule: "* * * * *", JobTemplate: &batchv1.JobTemplateSpec{
						Spec: &batchv1.JobSpec{Template: &corev1.PodTemplateSpec{Spec: spec}}}},
				}}))
		},
		"state to go back to": func() error {
			return second(jane.ControllerRevisions.Create(ctx(t), &appsv1rpc.CreateControllerRevisionRequest{
				Namespace: "default",
				Object: &appsv1.ControllerRevision{
					Metadata: &metav1.ObjectMeta{Name: "r", Namespace: "default"},
					Data: &metav1.RawExtension{Raw: []byte(
						`{"spec":{"template":{"spec":{"containers":[{"im\u0061ge":"host","image":"a"}]}}}}`)},
				},
			}))
		},
	}
	for name, attempt := range attempts {
		err := attempt()
		if !apierrors.Is(err, apierrors.Forbidden) || told(err) != `images.node.monoplane.dev "host" is forbidden: `+
			`User "jane" cannot use resource "images" in API group "node.monoplane.dev" in the namespace "default"` {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Neither other images nor what leaves the machine's files to the same commands takes the right.
	if err := second(jane.Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Namespace: "default",
		Object: podOfImage("a", "nginx")})); err != nil {
		t.Error(err)
	}
	scaled := clone(d)
	scaled.Spec.Replicas = proto.Int32(3)
	scaled.Spec.Template.Metadata.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "now"}
	d = must(jane.Deployments.Update(ctx(t), &appsv1rpc.UpdateDeploymentRequest{Namespace: "default", Object: scaled}))(t)
	if _, err := jane.Pods.Delete(ctx(t), &metav1.DeleteRequest{Namespace: "default", Name: "a"}); err != nil {
		t.Fatal(err)
	}
	controller := c.as(&authn.User{Name: authn.ControllerPrefix + "replicaset"})
	made := newPod("made")
	made.Metadata.OwnerReferences = []*metav1.OwnerReference{{ApiVersion: "apps/v1", Kind: "ReplicaSet", Name: "x",
		Uid: "1", Controller: proto.Bool(true)}}
	if err := second(controller.Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: made})); err != nil {
		t.Errorf("a controller: %v", err)
	}

	right := rule("use", "node.monoplane.dev", "images")
	right.ResourceNames = []string{"host"}
	c.grant("host", "default", right, person("jane"))
	for name, attempt := range attempts {
		if err := attempt(); err != nil {
			t.Errorf("%s, with the right: %v", name, err)
		}
	}
}

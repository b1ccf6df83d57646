package workloads_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
)

// kubectl does in this process, and so in virtual time, what kubectl does.
type kubectl struct{ client dynamic.Interface }

// resources are those of the kinds, by the names that people use for them.
var resources = map[string]schema.GroupVersionResource{
	"pod":                   {Version: "v1", Resource: "pods"},
	"replicationcontroller": {Version: "v1", Resource: "replicationcontrollers"},
	"persistentvolume":      {Version: "v1", Resource: "persistentvolumes"},
	"deployment":            {Group: "apps", Version: "v1", Resource: "deployments"},
	"replicaset":            {Group: "apps", Version: "v1", Resource: "replicasets"},
	"statefulset":           {Group: "apps", Version: "v1", Resource: "statefulsets"},
	"daemonset":             {Group: "apps", Version: "v1", Resource: "daemonsets"},
	"job":                   {Group: "batch", Version: "v1", Resource: "jobs"},
	"cronjob":               {Group: "batch", Version: "v1", Resource: "cronjobs"},

	"horizontalpodautoscaler": {Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"},
}

func (k kubectl) run(ctx context.Context, input string, args []string) error {
	command := args[0]
	if command == "set" || command == "rollout" {
		command, args = command+" "+args[1], args[1:]
	}
	args = args[1:]
	if command == "create" {
		return k.create(ctx, input)
	}
	on, rest, err := k.target(args)
	if err != nil {
		return err
	}
	switch command {
	case "scale":
		n, err := strconv.Atoi(strings.TrimPrefix(rest[0], "--replicas="))
		return errors.Join(err, on.patch(ctx, types.MergePatchType, fmt.Sprintf(`{"spec":{"replicas":%d}}`, n)))
	case "patch":
		how := types.StrategicMergePatchType
		if rest[0] == "--type=merge" {
			how, rest = types.MergePatchType, rest[1:]
		}
		return on.patch(ctx, how, rest[1])
	case "delete":
		orphan := metav1.DeletePropagationBackground
		if len(rest) > 0 && rest[0] == "--cascade=orphan" {
			orphan = metav1.DeletePropagationOrphan
		}
		return on.Delete(ctx, on.name, metav1.DeleteOptions{PropagationPolicy: &orphan})
	case "set image":
		name, image, _ := strings.Cut(rest[0], "=")
		return on.patch(ctx, types.StrategicMergePatchType, fmt.Sprintf(
			`{"spec":{"template":{"spec":{"containers":[{"name":%q,"image":%q}]}}}}`, name, image))
	case "set env":
		name, value, _ := strings.Cut(rest[0], "=")
		return on.patch(ctx, types.StrategicMergePatchType, fmt.Sprintf(
			`{"spec":{"template":{"spec":{"containers":[{"name":"main","env":[{"name":%q,"value":%q}]}]}}}}`, name, value))
	case "rollout pause", "rollout resume":
		return on.patch(ctx, types.MergePatchType, fmt.Sprintf(`{"spec":{"paused":%t}}`, command == "rollout pause"))
	case "rollout restart":
		return on.patch(ctx, types.MergePatchType, fmt.Sprintf(
			`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":%q}}}}}`,
			time.Now().Format(time.RFC3339)))
	case "rollout undo":
		return k.undo(ctx, on)
	default:
		return fmt.Errorf("kubectl %s is not known here", command)
	}
}

// target is what a command is about.
type target struct {
	dynamic.ResourceInterface

	name string
}

// target reads KIND/NAME or KIND NAME.
func (k kubectl) target(args []string) (*target, []string, error) {
	kind, name, both := strings.Cut(args[0], "/")
	args = args[1:]
	if !both {
		name, args = args[0], args[1:]
	}
	at, ok := resources[kind]
	if !ok {
		return nil, nil, fmt.Errorf("the kind %q is not known here", kind)
	}
	return &target{k.client.Resource(at).Namespace(namespace), name}, args, nil
}

func (t *target) patch(ctx context.Context, how types.PatchType, patch string) error {
	_, err := t.Patch(ctx, t.name, how, []byte(patch), metav1.PatchOptions{})
	return err
}

func (k kubectl) create(ctx context.Context, input string) error {
	all := yaml.NewYAMLOrJSONDecoder(strings.NewReader(input), 4096)
	for {
		o := &unstructured.Unstructured{}
		if err := all.Decode(&o.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if len(o.Object) == 0 {
			continue
		}
		kind := strings.ToLower(o.GetKind())
		at, ok := resources[kind]
		if !ok {
			return fmt.Errorf("the kind %q is not known here", kind)
		}
		in := namespace
		if kind == "persistentvolume" {
			in = ""
		}
		if _, err := k.client.Resource(at).Namespace(in).Create(ctx, o, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
}

// undo gives a Deployment the template of the newest of its sets but the current one, as kubectl does.
func (k kubectl) undo(ctx context.Context, on *target) error {
	d, err := on.Get(ctx, on.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	list, err := k.client.Resource(resources["replicaset"]).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	const annotation = "deployment.kubernetes.io/revision"
	now, _ := strconv.Atoi(d.GetAnnotations()[annotation])
	best, template := 0, []byte(nil)
	for _, item := range list.Items {
		revision, _ := strconv.Atoi(item.GetAnnotations()[annotation])
		if owner := metav1.GetControllerOf(&item); owner == nil || owner.UID != d.GetUID() || revision <= best ||
			revision >= now {
			continue
		}
		set := &appsv1.ReplicaSet{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, set); err != nil {
			return err
		}
		delete(set.Spec.Template.Labels, "pod-template-hash")
		if template, err = json.Marshal(set.Spec.Template); err != nil {
			return err
		}
		best = revision
	}
	if template == nil {
		return fmt.Errorf("%s has no revision before %d", on.name, now)
	}
	return on.patch(ctx, types.JSONPatchType,
		fmt.Sprintf(`[{"op":"replace","path":"/spec/template","value":%s}]`, template))
}

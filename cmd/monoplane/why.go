package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
	"monoplane.dev/client/admin"
	"monoplane.dev/codec"
)

func newWhyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "why POD | KIND/NAME | KIND NAME | -f FILE",
		Short: "Say why a pod is pending, where it would go, or why a workload does not get on",
		Long: `Asks the scheduler of a running cluster what it thinks of every node for a pod: which plugins refuse the
node and why, or how its plugins rate it. The pod is one of the cluster, or one described in a file, which is
not created.

Of a workload, such as deployment/web, it says what its status complains of, what was refused in its name, which
budgets hold its pods, and its pods by what each of them waits for.`,
		Example: `  monoplane why web-1
  monoplane why deployment/web
  monoplane why -f pod.yaml -o yaml`,
		Args: cobra.MaximumNArgs(2),
	}
	dir := addDataDir(cmd.Flags())
	namespace := cmd.Flags().StringP("namespace", "n", "",
		`namespace of the pod (default "default", or that of the pod in the file)`)
	output := cmd.Flags().StringP("output", "o", "table", "table, json or yaml")
	file := cmd.Flags().StringP("filename", "f", "", "file that describes the pod; - for the standard input")
	bindSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		show, ok := whyOutputs[*output]
		if !ok {
			return fmt.Errorf("--output: %q is not one of table, json and yaml", *output)
		}
		args, err := whyTarget(args)
		if err != nil {
			return err
		}
		if len(args) == 1 && *file == "" {
			if kind, name, ok := workload(args[0]); ok {
				report, err := admin.Progress(cmd.Context(), *dir, cmp.Or(*namespace, "default"), kind, name)
				if err != nil {
					return err
				}
				return showProgress(cmd.OutOrStdout(), *output, report)
			}
			args[0] = args[0][strings.LastIndex(args[0], "/")+1:]
		}
		spec, err := whyQuestion(args, *file, cmd.InOrStdin())
		if err != nil {
			return err
		}
		if *namespace == "" {
			*namespace = spec.GetPod().GetMetadata().GetNamespace()
		}
		if *namespace == "" {
			*namespace = "default"
		}
		review, err := askWhy(cmd.Context(), *dir, *namespace, spec)
		if err != nil {
			return err
		}
		return show(cmd.OutOrStdout(), review)
	}
	return cmd
}

// whyTarget joins a kind and a name that are two words, as kubectl takes them, too.
func whyTarget(args []string) ([]string, error) {
	if len(args) < 2 {
		return args, nil
	}
	if strings.Contains(args[0]+args[1], "/") {
		return nil, fmt.Errorf("%s %s: one thing is asked about at a time, as KIND/NAME or KIND NAME", args[0], args[1])
	}
	return []string{args[0] + "/" + args[1]}, nil
}

// workload reads "deployment/web"; ok is false for the name of a pod, with its kind or without.
func workload(arg string) (kind, name string, ok bool) {
	kind, name, ok = strings.Cut(arg, "/")
	switch strings.ToLower(kind) {
	case "pod", "pods", "po":
		return "", "", false
	default:
		return kind, name, ok
	}
}

func askWhy(
	ctx context.Context, dir, namespace string, spec *schedulingv1.PlacementReviewSpec,
) (*schedulingv1.PlacementReview, error) {
	return admin.ReviewPlacement(ctx, dir, &schedulingv1.PlacementReview{
		Metadata: &metav1.ObjectMeta{Namespace: namespace}, Spec: spec,
	})
}

// whyQuestion returns what is asked: about the pod of that name, or about the one in a file.
func whyQuestion(args []string, file string, stdin io.Reader) (*schedulingv1.PlacementReviewSpec, error) {
	switch {
	case len(args) == 1 && file == "":
		return &schedulingv1.PlacementReviewSpec{PodName: args[0]}, nil
	case len(args) == 1 || file == "":
		return nil, errors.New("name a pod, or a file with -f, and not both")
	}
	var text []byte
	var err error
	if file == "-" {
		text, err = io.ReadAll(stdin)
	} else {
		text, err = os.ReadFile(file) //nolint:gosec // the user names the file on purpose
	}
	if err != nil {
		return nil, err
	}
	pod, err := readPod(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &schedulingv1.PlacementReviewSpec{Pod: pod}, nil
}

// readPod reads one pod in YAML or JSON.
func readPod(text []byte) (*corev1.Pod, error) {
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	strict, err := codec.DecodeObject(data, pod)
	if err == nil && len(strict) > 0 {
		err = errors.New(strings.Join(strict, ", "))
	}
	return pod, err
}

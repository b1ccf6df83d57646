// Command client shows the Go client: it creates a pod, watches it until it runs, deletes it and watches it go.
//
//	go run ./examples/client -kubeconfig "$KUBECONFIG"
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
)

func main() {
	path := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "the kubeconfig that monoplane wrote")
	address := flag.String("address", "", "host:port of the gRPC API, when the kubeconfig does not say")
	name := flag.String("name", "example", "name of the pod")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *path, *address, *name); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, path, address, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cfg, err := client.LoadConfig(path)
	if err != nil {
		return err
	}
	if address != "" {
		cfg.Address = address
	}
	c, err := client.Dial(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()

	pod, err := c.Pods.Create(ctx, &corev1rpc.CreatePodRequest{Namespace: "default", Object: &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: name},
		Spec: &corev1.PodSpec{Containers: []*corev1.Container{{
			Name: "main", Image: "host", Command: []string{"sleep", "3600"},
		}}},
	}})
	if apierrors.Is(err, apierrors.AlreadyExists) {
		return fmt.Errorf("there is a pod of that name; choose another with -name: %w", err)
	}
	if err != nil {
		return err
	}
	fmt.Printf("created %s, uid %s\n", name, pod.GetMetadata().GetUid())

	err = watch(ctx, c, pod, func(p *corev1.Pod, gone bool) bool {
		return gone || p.GetStatus().GetPhase() == "Running"
	})
	if err != nil {
		return err
	}
	uid := pod.GetMetadata().GetUid()
	_, err = c.Pods.Delete(ctx, &metav1.DeleteRequest{
		Namespace: "default", Name: name,
		Options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{Uid: &uid}}, // this pod, not a successor
	})
	if err != nil {
		return err
	}
	fmt.Println("deletion has begun; the processes have their grace period")
	return watch(ctx, c, pod, func(_ *corev1.Pod, gone bool) bool { return gone })
}

// watch prints what happens to the pod until done says so. It starts at the state that pod has.
func watch(ctx context.Context, c *client.Client, pod *corev1.Pod, done func(p *corev1.Pod, gone bool) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	stream, err := c.Pods.Watch(ctx, &metav1.WatchRequest{
		Namespace: pod.GetMetadata().GetNamespace(), FieldSelector: "metadata.name=" + pod.GetMetadata().GetName(),
		ResourceVersion: pod.GetMetadata().GetResourceVersion(),
	})
	if err != nil {
		return err
	}
	for {
		batch, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, e := range batch.GetEvents() {
			p := e.GetObject()
			switch {
			case e.GetType() == "ERROR":
				return errors.New(e.GetStatus().GetMessage())
			case e.GetType() == "BOOKMARK" || p.GetMetadata().GetUid() != pod.GetMetadata().GetUid():
				continue
			}
			gone := e.GetType() == "DELETED"
			fmt.Printf("%-8s %-9s node %q\n", e.GetType(), p.GetStatus().GetPhase(), p.GetSpec().GetNodeName())
			if done(p, gone) {
				return nil
			}
		}
	}
}

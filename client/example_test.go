package client_test

import (
	"context"
	"fmt"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
)

// Create, read and delete a pod. Here the server is one of this process; client.Dial connects to others.
func Example() {
	ctx := context.Background()
	server, stop := apitest.Example()
	defer stop()
	c := client.New(server.Conn(apitest.User(authn.AdminName, authn.AdminsGroup)))

	pod, err := c.Pods.Create(ctx, &corev1rpc.CreatePodRequest{
		Namespace: "default",
		Object: &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Name: "hello"},
			Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "main", Image: "host"}}},
		},
	})
	if err != nil {
		panic(err)
	}
	uid := pod.GetMetadata().GetUid()
	_, err = c.Pods.Delete(ctx, &metav1.DeleteRequest{
		Namespace: "default", Name: "hello",
		Options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{Uid: &uid}},
	})
	fmt.Println(pod.GetMetadata().GetName(), err)
	// Output: hello <nil>
}

// Keep a copy of all pods, indexed by node.
func ExampleNew_cache() {
	ctx, cancel := context.WithCancel(context.Background())
	server, stop := apitest.Example()
	defer stop()
	c := client.New(server.Conn(apitest.User(authn.AdminName, authn.AdminsGroup)))
	pods := cache.New(cache.Config[*corev1.Pod]{
		Source: cache.Watch(c.Pods.Watch),
		Indexes: map[string]func(*corev1.Pod) []string{
			"node": func(p *corev1.Pod) []string { return []string{p.GetSpec().GetNodeName()} },
		},
	})
	done := make(chan error)
	go func() { done <- pods.Run(ctx) }()

	pod, err := c.Pods.Create(ctx, &corev1rpc.CreatePodRequest{
		Namespace: "default",
		Object: &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Name: "hello"},
			Spec:     &corev1.PodSpec{NodeName: "n1", Containers: []*corev1.Container{{Name: "main", Image: "host"}}},
		},
	})
	if err != nil {
		panic(err)
	}
	// Read our own write.
	if err := pods.WaitFor(ctx, pod.GetMetadata().GetResourceVersion()); err != nil {
		panic(err)
	}
	fmt.Println(len(pods.ByIndex("node", "n1")), "pod on n1")
	cancel()
	fmt.Println(<-done)
	// Output:
	// 1 pod on n1
	// context canceled
}

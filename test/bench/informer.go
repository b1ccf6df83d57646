package main

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// benchInformer compares how long client-go's informer takes for the pods of a cluster in protobuf, and in JSON: from
// its start until a handler has been told of all of them. Server and client share the process, so that the processor
// time is that of both.
func benchInformer(ctx context.Context, e *env, c *cluster, pods int) error {
	sync := func(contentType string) func(int) (float64, error) {
		return func(int) (float64, error) { return syncInformer(ctx, c, contentType, pods) }
	}
	p, err := paired(9, sync(kruntime.ContentTypeProtobuf), sync(kruntime.ContentTypeJSON))
	if err != nil {
		return err
	}
	e.print(row{
		name: fmt.Sprintf("informer sync of %d pods, protobuf", pods), measured: fmt.Sprintf("%.0f ms", p.got*1e3),
		limit: fmt.Sprintf("JSON %.0f ms", p.limit*1e3), ratio: p.ratio, cpu: p.cpu, target: "cpu <= 0.60",
		met: p.cpu <= 0.6,
	})
	return nil
}

// syncInformer returns how long a new informer took until its handler had been told of so many pods.
func syncInformer(ctx context.Context, c *cluster, contentType string, pods int) (float64, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return 0, err
	}
	config.ContentType = contentType
	config.AcceptContentTypes = contentType
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	runtime.GC() // what the round before has left
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().Pods().Informer()
	var seen atomic.Int64
	all := make(chan struct{})
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) {
		if seen.Add(1) == int64(pods) {
			close(all)
		}
	}})
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	stop := make(chan struct{})
	factory.Start(stop)
	defer factory.Shutdown()
	defer close(stop)
	select {
	case <-all:
		return time.Since(begin).Seconds(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("an informer has seen %d of %d pods: %w", seen.Load(), pods, ctx.Err())
	}
}

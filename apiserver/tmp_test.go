package apiserver_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"monoplane.dev/apiserver/store"
	corev1 "monoplane.dev/api/core/v1"
)

func cpu() time.Duration {
	var r syscall.Rusage
	syscall.Getrusage(0, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func TestTmpCPU(t *testing.T) {
	c := start(t, fsync(t))
	admin := c.admin()
	full := clone(c.createPod(benchPod("template")))
	const n = 3000
	for round := range 3 {
		for _, guard := range []bool{false, true} {
			w, u := time.Now(), cpu()
			ns, _ := c.store.Get(context.Background(), store.Key{Kind: corev1.NamespaceKind, Name: "default"}, "")
			var rev int64
			fmt.Sscan(ns.GetMetadata().ResourceVersion, &rev)
			spread(64, n, func(i int) {
				p := clone(full)
				p.Metadata.Name = fmt.Sprintf("raw-%d-%d-%v", round, i, guard)
				key := store.Key{Kind: corev1.PodKind, Namespace: "default", Name: p.Metadata.Name}
				txn := store.Txn{Ops: []store.Op{{Key: key, Object: p}}}
				if guard {
					txn.Guards = []store.Guard{{Key: store.Key{Kind: corev1.NamespaceKind, Name: "default"}, Condition: store.AtRevision, Revision: rev}}
				}
				if _, err := c.store.Commit(context.Background(), txn); err != nil {
					t.Error(err)
				}
			})
			fmt.Println("commit guard", guard, time.Since(w)/n, "cpu", (cpu()-u)/n)
		}
		w, u := time.Now(), cpu()
		spread(64, n, func(i int) {
			p := benchPod(fmt.Sprintf("pod-%d-%d", round, i))
			if _, err := admin.pods.Create(context.Background(), &corev1.CreatePodRequest{Object: p}); err != nil {
				t.Error(err)
			}
		})
		fmt.Println("create      ", time.Since(w)/n, "cpu", (cpu()-u)/n)
	}
}

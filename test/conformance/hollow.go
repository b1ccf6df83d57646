package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// machineKey is the annotation with which Monoplane tells on which machine a pod was started.
const machineKey = "monoplane.dev/machine-key"

// hollowNodes is the number of imitated nodes, as many as `monoplane up` simulates for the scripts.
const hollowNodes = 3

// hollow imitates the kubelets of a cluster's nodes until ctx ends: they register and renew their leases, every pod
// that is bound runs at once, or succeeds at once if it has the annotation with which Monoplane's runtime lets
// a container exit, and every pod that is deleted is gone at once.
func hollow(ctx context.Context, client kubernetes.Interface) {
	for i := range hollowNodes {
		node := hollowNode(i)
		_, _ = client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}) // Whoever waits for the nodes finds out.
		_, _ = client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	}
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { renew(ctx, client) })
	factory := informers.NewSharedInformerFactory(client, 0)
	var addresses int
	started := map[types.UID]bool{}
	act := func(object any) {
		pod, ok := object.(*corev1.Pod)
		if !ok || pod.Spec.NodeName == "" {
			return
		}
		if pod.DeletionTimestamp != nil {
			_ = client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{ // The next event tries again.
				GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &pod.UID},
			})
			return
		}
		if started[pod.UID] {
			return
		}
		started[pod.UID] = true
		addresses++
		status, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"annotations": map[string]string{machineKey: "KEY"}},
			"status":   runningStatus(pod, addresses),
		})
		if err != nil {
			panic(err) // A status has nothing that cannot be encoded.
		}
		// Nothing else writes the status of a bound pod, and a pod that is gone needs none.
		_, _ = client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, status, metav1.PatchOptions{},
			"status")
		for _, c := range pod.Spec.Containers {
			startedEvent(ctx, client, pod, c.Name)
		}
	}
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: act, UpdateFunc: func(_, object any) { act(object) },
	})
	if err != nil {
		panic(err) // The informer has not been started, let alone stopped.
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
}

// renew keeps the leases of the nodes.
func renew(ctx context.Context, client kubernetes.Interface) {
	leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	for {
		for i := range hollowNodes {
			name := fmt.Sprintf("node-%d", i)
			now, seconds := metav1.NowMicro(), int32(40)
			lease := &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &now},
			}
			if node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}); err == nil {
				lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID}}
			}
			if old, err := leases.Get(ctx, name, metav1.GetOptions{}); err == nil {
				lease.ResourceVersion = old.ResourceVersion
				_, _ = leases.Update(ctx, lease, metav1.UpdateOptions{}) // Tried again at the next heartbeat.
			} else {
				_, _ = leases.Create(ctx, lease, metav1.CreateOptions{}) // As above.
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(heartbeat):
		}
	}
}

// hollowNode is a node like those that Monoplane simulates.
func hollowNode(i int) *corev1.Node {
	now := metav1.Now()
	condition := func(
		kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string,
	) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type: kind, Status: status, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now,
		}
	}
	name, id := fmt.Sprintf("node-%d", i), fmt.Sprintf("simulated-%d", i)
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"), corev1.ResourcePods: resource.MustParse("110"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Annotations: map[string]string{machineKey: "KEY"},
			Labels: map[string]string{
				corev1.LabelArchStable: "amd64", corev1.LabelHostname: name, corev1.LabelOSStable: "linux",
			},
		},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.192.0.%d", i)},
				{Type: corev1.NodeHostName, Address: name},
			},
			Allocatable: capacity, Capacity: capacity,
			Conditions: []corev1.NodeCondition{
				condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory",
					"the node has sufficient memory available"),
				condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure",
					"the node has no disk pressure"),
				condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID",
					"the node has sufficient process ids available"),
				condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "the agent posts that it is ready"),
			},
			NodeInfo: corev1.NodeSystemInfo{
				Architecture: "amd64", BootID: id, ContainerRuntimeVersion: "fake://1.0.0", KernelVersion: "simulated",
				KubeletVersion: "v1.36.3", MachineID: id, OperatingSystem: "linux", OSImage: "simulated", SystemUUID: id,
			},
		},
	}
}

// runningStatus is what a kubelet says of a pod all of whose containers run, or have exited well.
func runningStatus(pod *corev1.Pod, address int) corev1.PodStatus {
	now := metav1.Now()
	_, exits := pod.Annotations["fake.monoplane.dev/exit-after"]
	status := corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &now, ObservedGeneration: pod.Generation,
		HostIP: "10.192.0.1", HostIPs: []corev1.HostIP{{IP: "10.192.0.1"}},
		PodIP: fmt.Sprintf("10.64.%d.%d", address/250, address%250+1),
	}
	status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
	ready, reason := corev1.ConditionTrue, ""
	if exits {
		status.Phase, ready, reason = corev1.PodSucceeded, corev1.ConditionFalse, "PodCompleted"
		state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Reason: "Completed", StartedAt: now, FinishedAt: now, ContainerID: "fake://id",
		}}
	}
	for _, kind := range []corev1.PodConditionType{
		corev1.PodScheduled, corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady,
		corev1.PodReady,
	} {
		c := corev1.PodCondition{
			Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now, ObservedGeneration: pod.Generation,
		}
		switch kind {
		case corev1.ContainersReady, corev1.PodReady:
			c.Status, c.Reason = ready, reason
		case corev1.PodInitialized:
			c.Reason = reason
		}
		status.Conditions = append(status.Conditions, c)
	}
	for _, c := range pod.Spec.Containers {
		runs := !exits
		s := corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: c.Image, ContainerID: "fake://id", State: state, Ready: runs, Started: &runs,
			Resources: c.Resources.DeepCopy(), AllocatedResources: c.Resources.Requests,
		}
		for _, m := range c.VolumeMounts {
			mount := corev1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
			if m.ReadOnly {
				disabled := corev1.RecursiveReadOnlyDisabled
				mount.RecursiveReadOnly = &disabled
			}
			s.VolumeMounts = append(s.VolumeMounts, mount)
		}
		status.ContainerStatuses = append(status.ContainerStatuses, s)
	}
	return status
}

// startedEvent tells of a container's start as a kubelet does.
func startedEvent(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, container string) {
	now := metav1.Now()
	_, _ = client.CoreV1().Events(pod.Namespace).Create(ctx, &corev1.Event{ // Kubelets lose events, too.
		ObjectMeta: metav1.ObjectMeta{GenerateName: pod.Name + ".", Namespace: pod.Namespace},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
			FieldPath: "spec.containers{" + container + "}",
		},
		Type: corev1.EventTypeNormal, Reason: "Started", Message: "Started container " + container, Count: 1,
		FirstTimestamp: now, LastTimestamp: now, ReportingController: "kubelet", ReportingInstance: pod.Spec.NodeName,
		Source: corev1.EventSource{Component: "kubelet", Host: pod.Spec.NodeName},
	}, metav1.CreateOptions{})
}

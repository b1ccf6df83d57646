package nodeagent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/codec/value"
	"monoplane.dev/codec/wire"
	"monoplane.dev/nodeagent/eviction"
	"monoplane.dev/object/storage"
)

// Labels that every node has. spec: NODE-6
const (
	labelHostname = "kubernetes.io/hostname"
	labelOS       = "kubernetes.io/os"
	labelArch     = "kubernetes.io/arch"
)

// describesMachine reports whether a label says what the machine is or where. Those are kept up to date, as kubelet
// does; others are given once, and are the users' after that.
func describesMachine(label string) bool {
	switch label {
	case labelHostname, labelOS, labelArch, "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
		"topology.kubernetes.io/zone", "topology.kubernetes.io/region",
		"failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region",
		"node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type":
		return true
	default:
		return false
	}
}

// register makes the API know the node as it is now. It tries until it succeeds; ErrRefused when the API says that
// this machine may not be the node. The Lease is left to the heartbeats: a node needs none to be back. spec: NODE-1,
// NODE-7
func (a *Agent) register(ctx context.Context) error {
	return retry(ctx, apiRetryMost, func(ctx context.Context) error {
		err := a.registerOnce(ctx)
		// Others write a new node too, to give its pods their addresses: it is read anew, and at once, since pods wait.
		for tries := 0; tries < 5 && apierrors.Is(err, apierrors.Conflict); tries++ {
			err = a.registerOnce(ctx)
		}
		if apierrors.Is(err, apierrors.Forbidden) {
			return fmt.Errorf("%w: %w", ErrRefused, err)
		}
		if err != nil && ctx.Err() == nil {
			a.cfg.Logger.Warn("the node cannot be registered", "error", err)
		}
		return err
	})
}

func (a *Agent) registerOnce(ctx context.Context) error {
	want := a.nodeObject()
	have, err := a.cfg.Client.Nodes.Create(ctx, &corev1rpc.CreateNodeRequest{Object: want})
	if apierrors.Is(err, apierrors.AlreadyExists) {
		have, err = a.readNode(ctx)
	}
	if err != nil {
		return err
	}
	if have, err = a.keepLabels(ctx, have); err != nil {
		return err
	}
	// A node that comes back is ready as soon as its pods' network is. To say first that it is not, because nobody has
	// told the runtime the ranges yet, would cost it a taint, and seconds.
	if len(have.GetSpec().GetPodCIDRs()) > 0 {
		a.tellRanges(ctx, have)
		a.askRuntime(ctx)
	}
	return a.writeNodeStatus(ctx, have)
}

// registerUnlessStopping registers the node, or lets that be when the node is to be empty: pods are stopped also where
// the API does not take the node just now. The heartbeats go on with it.
func (a *Agent) registerUnlessStopping(ctx context.Context) error {
	registering, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-a.stopping:
			cancel()
		case <-done:
		}
	}()
	err := a.register(registering)
	if err != nil && registering.Err() != nil && ctx.Err() == nil {
		a.cfg.Logger.Info("the node is stopping before it was registered")
		return nil
	}
	return err
}

// refused empties the node, because the API does not take it for the node it claims to be. spec: NODE-7
func (a *Agent) refused(ctx context.Context, err error) error {
	a.cfg.Logger.Error("the API server refuses this node; stopping its pods", "error", err)
	a.empty()
	var stuck *StuckError
	switch stop := a.StopPods(ctx, nil); {
	case errors.As(stop, &stuck):
		return errors.Join(err, stop)
	case stop != nil:
		return stop
	}
	return err
}

func (a *Agent) nodeLabels() map[string]string {
	labels := map[string]string{labelHostname: a.cfg.NodeName, labelOS: runtime.GOOS, labelArch: runtime.GOARCH}
	if info := a.cfg.Machine.Info; info != nil {
		labels[labelOS], labels[labelArch] = info.GetOperatingSystem(), info.GetArchitecture()
	}
	maps.Copy(labels, a.cfg.Labels)
	return labels
}

// nodeObject returns the node as it is registered first.
func (a *Agent) nodeObject() *corev1.Node {
	return &corev1.Node{
		Metadata: &metav1.ObjectMeta{Name: a.cfg.NodeName, Labels: a.nodeLabels(), Annotations: a.nodeAnnotations()},
		Spec:     &corev1.NodeSpec{Taints: a.cfg.Taints},
		Status:   a.nodeStatus(nil),
	}
}

// nodeAnnotations are those that the agent keeps: where it has the volumes that are made for claims.
func (a *Agent) nodeAnnotations() map[string]string {
	if a.cfg.VolumesDir == "" || a.cfg.Simulated {
		return nil
	}
	return map[string]string{storage.DirectoryOfVolumes: a.cfg.VolumesDir}
}

// keepLabels sets those of the labels that describe the machine, and of the agent's annotations, that are missing or
// differ.
func (a *Agent) keepLabels(ctx context.Context, have *corev1.Node) (*corev1.Node, error) {
	keep := a.nodeLabels()
	missing := false
	for k, v := range keep {
		if !describesMachine(k) {
			delete(keep, k)
			continue
		}
		if got, ok := have.GetMetadata().GetLabels()[k]; !ok || got != v {
			missing = true
		}
	}
	notes := a.nodeAnnotations()
	for k, v := range notes {
		missing = missing || have.GetMetadata().GetAnnotations()[k] != v
	}
	if !missing {
		return have, nil
	}
	want := have.Clone()
	if want.Metadata.Labels == nil {
		want.Metadata.Labels = make(map[string]string)
	}
	maps.Copy(want.Metadata.Labels, keep)
	for k, v := range notes {
		storage.Annotate(want, k, v)
	}
	return a.cfg.Client.Nodes.Update(ctx, &corev1rpc.UpdateNodeRequest{Name: a.cfg.NodeName, Object: want})
}

// writeNodeStatus brings the status of the node up to date, but for its images, and remembers the node.
func (a *Agent) writeNodeStatus(ctx context.Context, have *corev1.Node) error {
	return a.putNodeStatus(ctx, have, a.nodeStatus(have.GetStatus()))
}

// putNodeStatus writes the status of the node, if it differs, and remembers the node.
func (a *Agent) putNodeStatus(ctx context.Context, have *corev1.Node, status *corev1.NodeStatus) error {
	if !wire.Equal(status, have.GetStatus()) {
		want := &corev1.Node{Metadata: have.GetMetadata(), Spec: have.GetSpec(), Status: status}
		var err error
		have, err = a.cfg.Client.Nodes.UpdateStatus(ctx, &corev1rpc.UpdateNodeRequest{Name: a.cfg.NodeName, Object: want})
		if err != nil {
			return err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.node = have
	return nil
}

// nodeStatus returns the status that the node should have; old, which may be nil, keeps what others write, the
// times of transitions and the images, which the pulse reports. spec: NODE-1
func (a *Agent) nodeStatus(old *corev1.NodeStatus) *corev1.NodeStatus {
	s := old.Clone()
	if s == nil {
		s = &corev1.NodeStatus{}
	}
	m := &a.cfg.Machine
	s.Capacity, s.Allocatable = copyQuantities(m.Capacity), a.cfg.allocatable()
	s.NodeInfo = m.Info.Clone()
	s.Addresses = a.nodeAddresses()
	if s.DaemonEndpoints == nil {
		s.DaemonEndpoints = &corev1.NodeDaemonEndpoints{KubeletEndpoint: &corev1.DaemonEndpoint{}}
	}
	a.mu.Lock()
	s.RuntimeHandlers, s.Features = a.handlers, a.features
	a.mu.Unlock()
	a.nodeConditions(s)
	return s
}

func copyQuantities(m map[string]*metav1.Quantity) map[string]*metav1.Quantity {
	out := make(map[string]*metav1.Quantity, len(m))
	for k, q := range m {
		out[k] = &metav1.Quantity{String_: q.GetString_()}
	}
	return out
}

// A node may hold any number of images, and its object is read often; the kubelet has the same bounds.
const (
	maxImages     = 50
	maxImageNames = 5
)

// listImages asks the runtime for the images to report; it takes statusTimeout at most.
func (a *Agent) listImages(ctx context.Context) ([]*corev1.ContainerImage, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	list, err := a.cfg.Images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	return nodeImages(list.GetImages()), err
}

// writeImages brings the images in the status of the node, as it was last seen, up to date.
func (a *Agent) writeImages(ctx context.Context, images []*corev1.ContainerImage) error {
	a.mu.Lock()
	have := a.node
	a.mu.Unlock()
	status := &corev1.NodeStatus{}
	status.SetShallow(have.GetStatus())
	status.Images = images
	return a.putNodeStatus(ctx, have, status)
}

// nodeImages returns the largest of the images that have a name, the largest first.
func nodeImages(all []*runtimeapi.Image) []*corev1.ContainerImage {
	var out []*corev1.ContainerImage
	for _, image := range all {
		// Tags first, since pods name images by them. Sorted, so that a runtime that lists them in another order does
		// not cause a write.
		names := slices.Concat(slices.Sorted(slices.Values(image.GetRepoTags())),
			slices.Sorted(slices.Values(image.GetRepoDigests())))
		if len(names) == 0 {
			continue
		}
		names = slices.Clone(names[:min(len(names), maxImageNames)]) // the rest need not be kept
		size := min(image.GetSize(), math.MaxInt64)
		out = append(out, &corev1.ContainerImage{Names: names, SizeBytes: int64(size)})
	}
	slices.SortFunc(out, func(a, b *corev1.ContainerImage) int {
		return cmp.Or(cmp.Compare(b.GetSizeBytes(), a.GetSizeBytes()), cmp.Compare(a.GetNames()[0], b.GetNames()[0]))
	})
	return slices.Clone(out[:min(len(out), maxImages)])
}

func (a *Agent) nodeConditions(s *corev1.NodeStatus) {
	pressing := a.pressing()
	is := func(condition string) bool { return slices.Contains(pressing, condition) }
	unready := a.Unready()
	for _, c := range []struct {
		kind        string
		on          bool
		yes, no     string
		yesMsg, msg string
	}{
		{eviction.MemoryPressure, is(eviction.MemoryPressure), "KubeletHasInsufficientMemory", "KubeletHasSufficientMemory",
			"the node has little memory available", "the node has sufficient memory available"},
		{eviction.DiskPressure, is(eviction.DiskPressure), "KubeletHasDiskPressure", "KubeletHasNoDiskPressure",
			"the node has little disk space available", "the node has no disk pressure"},
		{eviction.PIDPressure, is(eviction.PIDPressure), "KubeletHasInsufficientPID", "KubeletHasSufficientPID",
			"the node has few process ids available", "the node has sufficient process ids available"},
		{"Ready", unready == "", "KubeletReady", "KubeletNotReady", "the agent posts that it is ready", unready},
	} {
		status, reason, message := "False", c.no, c.msg
		if c.on {
			status, reason, message = "True", c.yes, c.yesMsg
		}
		setNodeCondition(s, c.kind, status, reason, message)
	}
	a.stuckCondition(s)
}

func nodeCondition(s *corev1.NodeStatus, kind string) *corev1.NodeCondition {
	for _, c := range s.GetConditions() {
		if c.GetType() == kind {
			return c
		}
	}
	return nil
}

func setNodeCondition(s *corev1.NodeStatus, kind, status, reason, message string) {
	c := nodeCondition(s, kind)
	if c == nil {
		c = &corev1.NodeCondition{Type: kind}
		s.Conditions = append(s.Conditions, c)
	}
	at := value.Time(now())
	if c.Status != status {
		c.LastTransitionTime = at
	}
	c.Status, c.Reason, c.Message, c.LastHeartbeatTime = status, reason, message, at
}

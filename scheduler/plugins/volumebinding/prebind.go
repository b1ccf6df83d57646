package volumebinding

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/object"
	"monoplane.dev/object/storage"
	"monoplane.dev/scheduler/framework"
)

// PreFlight says that PreBind has nothing to do for pods whose volumes are bound.
func (p *Plugin) PreFlight(state *framework.CycleState, _ *framework.PodInfo, _ string) *framework.Status {
	if state.VolumePlan() == nil {
		return p.skip
	}
	return nil
}

// PreBind writes what Reserve planned, and waits until the claims are bound.
func (p *Plugin) PreBind(
	ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, _ string,
) *framework.Status {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	b := binding{client: p.client, plan: state.VolumePlan(), pod: pod, node: state.Picked()}
	wake, stop := state.News().About(b.subjects()...)
	defer stop()
	err := b.write(ctx)
	if err == nil {
		err = b.wait(ctx, wake)
	}
	if err != nil {
		return framework.AsError(Name, fmt.Errorf("running PreBind plugin %q: binding volumes: %w", Name, err))
	}
	return nil
}

// patience is how long the binding waits for a change before it looks whether it has missed one.
const patience = 5 * time.Second

// binding is one PreBind.
type binding struct {
	client *client.Client
	plan   *framework.VolumePlan
	pod    *framework.PodInfo
	node   *corev1.Node
}

// write carries out the plan as far as nobody else has. It asks the server about everything that it depends on.
func (b *binding) write(ctx context.Context) error {
	for _, c := range b.plan.Bind {
		if err := b.take(ctx, c); err != nil {
			return err
		}
	}
	for _, c := range b.plan.Provision {
		if err := b.place(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// take binds a volume to a claim, unless it is already.
func (b *binding) take(ctx context.Context, c framework.VolumeChoice) error {
	o, err := b.claim(ctx, c.Claim)
	if err != nil {
		return err
	}
	if name := o.GetSpec().GetVolumeName(); name != "" && name != c.Volume.Name {
		return fmt.Errorf("claim %s is bound to volume %q meanwhile", c.Claim.Key, name)
	}
	v, err := b.volume(ctx, c.Volume.Name)
	if err != nil {
		return err
	}
	next := storage.BoundVolume(v, o)
	if next == v {
		return nil
	}
	if !storage.Meant(v, o) && !c.Claim.Wish.Free(v) || !c.Claim.Wish.Holds(v, storage.Size(v)) {
		return fmt.Errorf("volume %s is not what it was", c.Volume.Name)
	}
	if _, err := b.client.PersistentVolumes.Update(ctx,
		&corev1rpc.UpdatePersistentVolumeRequest{Object: next}); err != nil {
		return fmt.Errorf("bind volume %s: %w", c.Volume.Name, err)
	}
	return nil
}

// place says on a claim where its volume is to be made.
func (b *binding) place(ctx context.Context, c *framework.ClaimInfo) error {
	o, err := b.claim(ctx, c)
	if err != nil || storage.IsBound(o) {
		return err
	}
	switch on := o.GetMetadata().GetAnnotations()[storage.SelectedNode]; on {
	case b.plan.Node:
		return nil
	case "":
	default:
		return fmt.Errorf("the volume of claim %s is being made on node %s", c.Key, on)
	}
	next := object.Clone(o)
	storage.Annotate(next, storage.SelectedNode, b.plan.Node)
	if _, err := b.client.PersistentVolumeClaims.Update(ctx,
		&corev1rpc.UpdatePersistentVolumeClaimRequest{Object: next}); err != nil {
		return fmt.Errorf("select the node of claim %s: %w", c.Key, err)
	}
	return nil
}

// claim asks the server for a claim, which must be the same and usable.
func (b *binding) claim(ctx context.Context, c *framework.ClaimInfo) (*corev1.PersistentVolumeClaim, error) {
	o, err := b.client.PersistentVolumeClaims.Get(ctx, &metav1.GetRequest{Namespace: c.Key.Namespace, Name: c.Key.Name})
	if apierrors.Is(err, apierrors.NotFound) {
		return nil, errors.New(unusable(nil, c.Key.Name))
	}
	if err != nil {
		return nil, fmt.Errorf("read claim %s: %w", c.Key, err)
	}
	if o.GetMetadata().GetUid() != c.Claim.GetMetadata().GetUid() {
		return nil, fmt.Errorf("claim %s is another one", c.Key)
	}
	if why := unusable(framework.NewClaimInfo(o), c.Key.Name); why != "" {
		return nil, errors.New(why)
	}
	return o, nil
}

// volume asks the server for a volume.
func (b *binding) volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	v, err := b.client.PersistentVolumes.Get(ctx, &metav1.GetRequest{Name: name})
	if apierrors.Is(err, apierrors.NotFound) {
		return nil, fmt.Errorf("persistentvolume %q not found", name)
	}
	if err != nil {
		return nil, fmt.Errorf("read volume %s: %w", name, err)
	}
	return v, nil
}

// subjects are the objects that a change may come from which ends the wait. A volume that is being made is told of by
// its claim.
func (b *binding) subjects() []framework.Subject {
	list := []framework.Subject{{Kind: framework.PodSubject, Key: b.pod.Key}}
	for _, c := range b.plan.Bind {
		list = append(list, framework.Subject{Kind: framework.ClaimSubject, Key: c.Claim.Key},
			framework.Subject{Kind: framework.VolumeSubject, Key: cache.Key{Name: c.Volume.Name}})
	}
	for _, c := range b.plan.Provision {
		list = append(list, framework.Subject{Kind: framework.ClaimSubject, Key: c.Key})
	}
	return list
}

// wait waits until all claims are bound to volumes that the node can reach, or cannot be.
func (b *binding) wait(ctx context.Context, wake <-chan struct{}) error {
	pause := time.NewTicker(patience)
	defer pause.Stop()
	for {
		done, err := b.check(ctx)
		if err != nil && ctx.Err() != nil {
			return ctx.Err() // whichever question it failed of does not matter
		}
		if done || err != nil {
			return err
		}
		select {
		case <-wake:
		case <-pause.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *binding) check(ctx context.Context) (done bool, err error) {
	p, err := b.client.Pods.Get(ctx, &metav1.GetRequest{Namespace: b.pod.Key.Namespace, Name: b.pod.Key.Name})
	if apierrors.Is(err, apierrors.NotFound) || err == nil && (p.GetMetadata().GetUid() != b.pod.UID ||
		p.GetMetadata().GetDeletionTimestamp() != nil) {
		return false, errors.New("pod does not exist any more")
	}
	if err != nil {
		return false, fmt.Errorf("read the pod: %w", err)
	}
	done = true
	for _, c := range b.plan.Bind {
		bound, err := b.taken(ctx, c)
		if err != nil {
			return false, err
		}
		done = done && bound
	}
	for _, c := range b.plan.Provision {
		bound, err := b.made(ctx, c)
		if err != nil {
			return false, err
		}
		done = done && bound
	}
	return done, nil
}

// taken says whether a claim is bound to the volume that was chosen for it.
func (b *binding) taken(ctx context.Context, c framework.VolumeChoice) (bool, error) {
	v, err := b.volume(ctx, c.Volume.Name)
	if err != nil {
		return false, err
	}
	if v.GetSpec().GetClaimRef().GetUid() != c.Claim.Claim.GetMetadata().GetUid() {
		return false, fmt.Errorf("ClaimRef got reset for pv %q", c.Volume.Name)
	}
	o, err := b.claim(ctx, c.Claim)
	if err != nil {
		return false, err
	}
	if name := o.GetSpec().GetVolumeName(); name != "" && name != c.Volume.Name {
		return false, fmt.Errorf("claim %s is bound to volume %q meanwhile", c.Claim.Key, name)
	}
	return storage.IsBound(o), b.reaches(v)
}

// made says whether a claim is bound to the volume that was made for it.
func (b *binding) made(ctx context.Context, c *framework.ClaimInfo) (bool, error) {
	o, err := b.claim(ctx, c)
	if err != nil {
		return false, err
	}
	if !storage.IsBound(o) {
		if o.GetMetadata().GetAnnotations()[storage.SelectedNode] != b.plan.Node {
			return false, fmt.Errorf("provisioning failed for PVC %q", c.Key.Name)
		}
		return false, nil
	}
	v, err := b.volume(ctx, o.GetSpec().GetVolumeName())
	if err != nil {
		return false, err
	}
	return true, b.reaches(v)
}

func (b *binding) reaches(v *corev1.PersistentVolume) error {
	if !Volume(v).Reaches(b.node) {
		return fmt.Errorf("pv %q node affinity doesn't match node %q", v.GetMetadata().GetName(), b.plan.Node)
	}
	return nil
}

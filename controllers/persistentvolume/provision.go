package persistentvolume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	storagev1 "monoplane.dev/api/storage/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/record"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
	"monoplane.dev/object/storage"
)

// pathParameter of a class is the directory on the node that its volumes are in, in place of the agent's own.
const pathParameter = "path"

// provision has a volume made for a claim: by us, or by the provisioner that its class names.
func (c *Controller) provision(
	ctx context.Context, o *corev1.PersistentVolumeClaim, class *storagev1.StorageClass,
) error {
	by := class.GetProvisioner()
	switch {
	case class == nil:
		c.cannotProvision(o, fmt.Sprintf("storageclass.storage.k8s.io %q not found", storage.ClassOfClaim(o)))
	case by != storage.LocalProvisioner && strings.HasPrefix(by, "kubernetes.io/"):
		c.cannotProvision(o, "no volume plugin matched name: "+by)
	default:
		o, err := c.nameProvisioner(ctx, o, by)
		if err != nil {
			return err
		}
		if by == storage.LocalProvisioner {
			return c.provisionLocal(ctx, o, class)
		}
		c.events.Event(o, record.Normal, "ExternalProvisioning", "Provisioning", fmt.Sprintf(
			"Waiting for a volume to be created either by the external provisioner '%s' or manually by the system "+
				"administrator. "+
				"If volume creation is delayed, please verify that the provisioner is running and correctly registered.", by))
	}
	_, err := c.claimStatus(ctx, o, pending, nil)
	return err
}

func (c *Controller) cannotProvision(o *corev1.PersistentVolumeClaim, why string) {
	c.events.Event(o, record.Warning, "ProvisioningFailed", "Provisioning", why)
}

// nameProvisioner says on a claim who is to make its volume: external provisioners wait for that.
func (c *Controller) nameProvisioner(
	ctx context.Context, o *corev1.PersistentVolumeClaim, by string,
) (*corev1.PersistentVolumeClaim, error) {
	a := o.GetMetadata().GetAnnotations()
	if a[storage.Provisioner] == by && a[storage.BetaProvisioner] == by {
		return o, nil
	}
	next := object.Clone(o)
	storage.Annotate(next, storage.Provisioner, by)
	storage.Annotate(next, storage.BetaProvisioner, by)
	return c.writeClaim(ctx, next)
}

// refusal is why no volume can be made as things are. The scheduler may choose another node.
type refusal string

func (r refusal) Error() string { return string(r) }

// provisionLocal makes a local volume for a claim and binds it.
func (c *Controller) provisionLocal(
	ctx context.Context, o *corev1.PersistentVolumeClaim, class *storagev1.StorageClass,
) error {
	v, err := c.localVolume(ctx, o, class)
	if err == nil {
		v, err = c.create(ctx, v, o)
	}
	var refused refusal
	if errors.As(err, &refused) {
		c.metrics.done("provision", err)
		c.cannotProvision(o, fmt.Sprintf("Failed to provision volume with StorageClass %q: %s",
			class.GetMetadata().GetName(), refused))
		if storage.Has(o, storage.SelectedNode) {
			next := object.Clone(o)
			delete(next.Metadata.Annotations, storage.SelectedNode)
			_, err = c.writeClaim(ctx, next)
			return err
		}
		_, err = c.claimStatus(ctx, o, pending, nil)
		return err
	}
	if err != nil {
		return err
	}
	return c.bind(ctx, v, o)
}

// localVolume returns the volume to make, or the refusal.
func (c *Controller) localVolume(
	ctx context.Context, o *corev1.PersistentVolumeClaim, class *storagev1.StorageClass,
) (*corev1.PersistentVolume, error) {
	name := o.GetMetadata().GetAnnotations()[storage.SelectedNode]
	if name == "" {
		return nil, refusal("a local volume is made on the node of the pod that uses it: the class must have " +
			"volumeBindingMode WaitForFirstConsumer")
	}
	if why := unfit(o, class); why != "" {
		return nil, refusal(why)
	}
	node, err := c.cfg.Client.Nodes.Get(ctx, &metav1.GetRequest{Name: name})
	if apierrors.Is(err, apierrors.NotFound) {
		return nil, refusal(fmt.Sprintf("Failed to get target node: node %q not found", name))
	}
	if err != nil {
		return nil, fmt.Errorf("read node %s: %w", name, err)
	}
	host := node.GetMetadata().GetLabels()[storage.HostnameLabel]
	if host == "" {
		return nil, refusal(fmt.Sprintf("node %q has no label %s", name, storage.HostnameLabel))
	}
	volume := "pvc-" + o.GetMetadata().GetUid()
	mode := o.GetSpec().GetVolumeMode()
	chosen := class.GetParameters()[pathParameter]
	own := node.GetMetadata().GetAnnotations()[storage.DirectoryOfVolumes]
	v := &corev1.PersistentVolume{
		Metadata: &metav1.ObjectMeta{Name: volume, Annotations: map[string]string{
			storage.BoundByController: "yes", storage.ProvisionedBy: storage.LocalProvisioner,
		}},
		Spec: &corev1.PersistentVolumeSpec{
			Capacity: map[string]*metav1.Quantity{"storage": value.NewQuantity(storage.Asked(o))},
			PersistentVolumeSource: &corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{
				Path: path.Join(cmp.Or(chosen, own, c.cfg.Directory), volume)}},
			AccessModes:                   o.GetSpec().GetAccessModes(),
			ClaimRef:                      storage.Reference(o),
			PersistentVolumeReclaimPolicy: cmp.Or(class.GetReclaimPolicy(), "Delete"),
			StorageClassName:              storage.ClassOfClaim(o),
			MountOptions:                  class.GetMountOptions(),
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []*corev1.NodeSelectorTerm{{
					MatchExpressions: []*corev1.NodeSelectorRequirement{{Key: storage.HostnameLabel, Operator: "In",
						Values: []string{host}}},
				}}}},
		},
	}
	if chosen == "" && own != "" {
		storage.Annotate(v, storage.MadeOn, name)
	}
	if mode != "" {
		v.Spec.VolumeMode = &mode
	}
	return v, nil
}

// unfit says why a directory of a node cannot be what a claim asks for; "" when it can.
func unfit(o *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) string {
	for key := range class.GetParameters() {
		if key != pathParameter {
			return fmt.Sprintf("unknown parameter %q", key)
		}
	}
	if p, ok := class.GetParameters()[pathParameter]; ok && (!path.IsAbs(p) || path.Clean(p) != p) {
		return fmt.Sprintf("parameter path: %q is not the clean absolute path of a directory", p)
	}
	if o.GetSpec().GetVolumeMode() == "Block" {
		return "a local volume is a directory: it has no volumeMode Block"
	}
	if o.GetSpec().GetSelector() != nil {
		return "claim.spec.selector is not supported"
	}
	if o.GetSpec().GetDataSource() != nil || o.GetSpec().GetDataSourceRef() != nil {
		return "a local volume begins empty: it has no dataSource"
	}
	if o.GetSpec().GetVolumeAttributesClassName() != "" {
		return "a local volume has no volumeAttributesClassName"
	}
	for _, m := range o.GetSpec().GetAccessModes() {
		if m != "ReadWriteOnce" && m != storage.OncePod {
			return "a local volume is on one node: it has no access mode " + m
		}
	}
	return ""
}

// create makes the volume, unless an earlier try did.
func (c *Controller) create(
	ctx context.Context, v *corev1.PersistentVolume, o *corev1.PersistentVolumeClaim,
) (*corev1.PersistentVolume, error) {
	made, err := c.cfg.Client.PersistentVolumes.Create(ctx, &corev1rpc.CreatePersistentVolumeRequest{Object: v})
	name := v.GetMetadata().GetName()
	if apierrors.Is(err, apierrors.AlreadyExists) {
		there, err := c.readVolume(ctx, name)
		switch {
		case err != nil:
			return nil, err
		case there == nil:
			return nil, fmt.Errorf("volume %s was there and is gone", name)
		case !storage.Meant(there, o) || there.GetMetadata().GetDeletionTimestamp() != nil:
			return nil, refusal(fmt.Sprintf("there is a volume %s that is not for this claim", name))
		}
		return there, nil
	}
	c.metrics.done("provision", err)
	if err != nil {
		return nil, fmt.Errorf("create volume %s: %w", name, err)
	}
	c.events.Event(o, record.Normal, "ProvisioningSucceeded", "Provisioning",
		fmt.Sprintf("Successfully provisioned volume %s using %s", name, storage.LocalProvisioner))
	return made, c.seen(ctx, c.volumes.WaitFor, made)
}

// defaultClass returns the class of claims that name none: of several the newest, then the first by name; "" for none.
func (c *Controller) defaultClass() string {
	return storage.DefaultOf(c.classes.List("", nil))
}

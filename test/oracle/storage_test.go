package oracle

import (
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	k8sstorage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ourcore "monoplane.dev/apiserver/kinds/core"
	"monoplane.dev/apiserver/kinds/core/claimspec"
	ourstorage "monoplane.dev/apiserver/kinds/storage"

	corev1 "monoplane.dev/api/core/v1"
	storagev1 "monoplane.dev/api/storage/v1"
)

// storageWords are what the fields of storage know, beside words.
var storageWords = []string{
	"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod", "Block", "Filesystem", "Retain", "Delete",
	"Recycle",
	"Immediate", "WaitForFirstConsumer", "fast", "slow", "NodeResizePending", "beta.kubernetes.io/os", "kubernetes.io/os",
	"/", "",
}

// otherMode replaces an access mode by a word that storage knows, sometimes.
func otherMode(r *rand.Rand, modes []v1.PersistentVolumeAccessMode) {
	if len(modes) > 0 && r.IntN(3) == 0 {
		modes[r.IntN(len(modes))] = v1.PersistentVolumeAccessMode(pick(r, storageWords))
	}
}

// unsupported are the parts of storage that Monoplane refuses, which its validation does not look into, and references
// into other namespaces, which Kubernetes drops.
func unsupported(path string) bool {
	for _, s := range []string{"DataSourceRef.Namespace", ".Status.", ".ModifyVolumeStatus"} {
		if strings.Contains(path, s) {
			return true
		}
	}
	return false
}

func localVolume() *v1.PersistentVolume {
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "v", ResourceVersion: "1", Annotations: map[string]string{"a": "b"},
			Finalizers: []string{"kubernetes.io/pv-protection"}},
		Spec: v1.PersistentVolumeSpec{
			Capacity: amounts("storage", "1Gi"), AccessModes: []v1.PersistentVolumeAccessMode{"ReadWriteOnce", "ReadOnlyMany"},
			StorageClassName:       "fast",
			PersistentVolumeSource: v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: "/mnt/a"}},
			MountOptions:           []string{"ro"},
			NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: "beta.kubernetes.io/os", Operator: "In",
					Values: []string{"linux"}}},
			}}}},
			ClaimRef: &v1.ObjectReference{Namespace: "default", Name: "c"},
		},
	}
}

// volumes are valid ones, of every source.
func volumes() []*v1.PersistentVolume {
	var all []*v1.PersistentVolume
	for _, s := range []v1.PersistentVolumeSource{
		{Local: &v1.LocalVolumeSource{Path: "/mnt/a"}}, {HostPath: &v1.HostPathVolumeSource{Path: "/"}},
		{NFS: &v1.NFSVolumeSource{Server: "s", Path: "/p"}},
		{CSI: &v1.CSIPersistentVolumeSource{Driver: "d.example.com", VolumeHandle: "h",
			NodePublishSecretRef: &v1.SecretReference{Name: "s", Namespace: "n"}}},
	} {
		v := localVolume()
		v.Spec.PersistentVolumeSource = s
		all = append(all, v)
	}
	for _, s := range persistentDrivers() {
		v := localVolume()
		v.Spec.PersistentVolumeSource = s
		all = append(all, v)
	}
	return all
}

func TestPersistentVolumesAreJudgedAlike(t *testing.T) {
	withDriverWords(func() { comparePersistentVolumes(t) })
}

func comparePersistentVolumes(t *testing.T) {
	t.Helper()
	r := random(t)
	only := func(path string) bool { return !unsupported(path) }
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		old := pick(r, volumes())
		if r.IntN(4) == 0 {
			old.Spec.NodeAffinity = nil
			old.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/a"}}
		}
		if r.IntN(4) == 0 {
			old.Spec.VolumeAttributesClassName = ptr("gold")
		}
		k := old.DeepCopy()
		what := append(alter(r, &k.Spec, r.IntN(4), only), alter(r, &k.ObjectMeta, r.IntN(2), nil)...)
		otherMode(r, k.Spec.AccessModes)
		switch r.IntN(12) {
		case 0:
			k.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimPolicy(pick(r, storageWords))
		case 1:
			k.Spec.VolumeMode = ptr(v1.PersistentVolumeMode(pick(r, storageWords)))
		case 2:
			if n := k.Spec.NodeAffinity; n != nil && n.Required != nil && len(n.Required.NodeSelectorTerms) > 0 {
				for i := range n.Required.NodeSelectorTerms[0].MatchExpressions {
					n.Required.NodeSelectorTerms[0].MatchExpressions[i].Key = pick(r, storageWords)
				}
			}
		case 3:
			k.Annotations = map[string]string{"volume.beta.kubernetes.io/mount-options": "ro"}
		case 4:
			if k.Spec.CSI != nil {
				k.Spec.CSI.ControllerExpandSecretRef = &v1.SecretReference{Name: "s", Namespace: "n"}
			}
		}
		theirs := ask[verdict](t, "persistentvolumes", k, old)
		v, err := ours(k, &corev1.PersistentVolume{})
		if err != nil {
			t.Fatal(err)
		}
		o, err := ours(old, &corev1.PersistentVolume{})
		if err != nil {
			t.Fatal(err)
		}
		ourcore.DefaultPersistentVolume(v)
		ourcore.DefaultPersistentVolume(o)
		keep(v.Metadata, o.Metadata)
		if report(t, append(what, "create"), plain(compare(theirs.Created,
			ourFaults(ourcore.ValidatePersistentVolume(v))))) ||
			report(t, append(what, "update"),
				onlyMeta(plain(compare(theirs.Updated, ourFaults(ourcore.ValidatePersistentVolumeUpdate(v, o)))))) {
			bad++
		}
	}
}

// plain leaves out faults whose message in Kubernetes repeats a whole structure, where ours of the same field is
// shorter.
func plain(diff []string) []string {
	mine := map[string]bool{}
	key := func(d string) string {
		parts := strings.Fields(d)
		return parts[2] + parts[3]
	}
	for _, prefix := range []string{"only Monoplane", "only Kubernetes"} {
		for _, d := range diff {
			if strings.HasPrefix(d, prefix) && (strings.Contains(d, "immutable") || strings.Contains(d, "spec.capacity:")) {
				mine[prefix+key(d)] = true
			}
		}
	}
	var left []string
	for _, d := range diff {
		if k := key(d); !mine["only Monoplane"+k] || !mine["only Kubernetes"+k] {
			left = append(left, d)
		}
	}
	return left
}

func TestPersistentVolumeClaimsAreJudgedAlike(t *testing.T) {
	base := func() *v1.PersistentVolumeClaim {
		return &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "default", ResourceVersion: "1",
				Finalizers: []string{"kubernetes.io/pvc-protection"}},
			Spec: v1.PersistentVolumeClaimSpec{
				AccessModes: []v1.PersistentVolumeAccessMode{"ReadWriteOnce", "ReadWriteMany"}, StorageClassName: ptr("fast"),
				Resources: v1.VolumeResourceRequirements{Requests: amounts("storage", "5")},
				Selector:  &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			},
			Status: v1.PersistentVolumeClaimStatus{Phase: "Pending", Capacity: amounts("storage", "2")},
		}
	}
	const beta = "volume.beta.kubernetes.io/storage-class"
	r := random(t)
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		old := base()
		if r.IntN(2) == 0 {
			old.Status.Phase, old.Spec.VolumeName = "Bound", "v"
		}
		if r.IntN(3) == 0 {
			old.Spec.StorageClassName = nil
		}
		if r.IntN(4) == 0 {
			old.Annotations = map[string]string{beta: "fast"}
		}
		if r.IntN(4) == 0 {
			old.Spec.VolumeAttributesClassName = ptr("gold")
			if r.IntN(2) == 0 {
				old.Status.CurrentVolumeAttributesClassName = ptr("gold")
			}
		}
		if r.IntN(4) == 0 {
			old.Spec.DataSource = &v1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "c"}
			old.Spec.DataSourceRef = &v1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "c"}
		}
		k := old.DeepCopy()
		what := append(alter(r, &k.Spec, r.IntN(3), func(p string) bool { return !unsupported(p) }),
			alter(r, &k.ObjectMeta, r.IntN(2), nil)...)
		otherMode(r, k.Spec.AccessModes)
		switch r.IntN(8) {
		case 0:
			k.Spec.StorageClassName = ptr(pick(r, storageWords))
		case 1:
			k.Annotations = map[string]string{beta: pick(r, storageWords)}
		case 2:
			k.Annotations = nil
		case 3:
			k.Spec.Resources.Requests = amounts("storage", pick(r, quantities))
		case 4:
			k.Spec.VolumeName = pick(r, storageWords)
		case 5:
			k.Spec.DataSource = &v1.TypedLocalObjectReference{
				APIGroup: pick(r, []*string{nil, ptr(""), ptr("snapshot.storage.k8s.io"), ptr("a b")}),
				Kind:     pick(r, []string{"PersistentVolumeClaim", "VolumeSnapshot", "X"}), Name: "c"}
		}
		theirs := ask[verdict](t, "persistentvolumeclaims", k, old)
		c, err := ours(k, &corev1.PersistentVolumeClaim{})
		if err != nil {
			t.Fatal(err)
		}
		o, err := ours(old, &corev1.PersistentVolumeClaim{})
		if err != nil {
			t.Fatal(err)
		}
		made := proto.CloneOf(c)
		ourcore.DefaultNewPersistentVolumeClaim(made)
		ourcore.DefaultPersistentVolumeClaim(o)
		ourcore.DefaultPersistentVolumeClaim(c)
		claimspec.NormalizeDataSource(c.Spec, o.Spec)
		keep(c.Metadata, o.Metadata)
		if report(t, append(what, "create"), compare(theirs.Created,
			ourFaults(ourcore.ValidatePersistentVolumeClaim(made)))) ||
			report(t, append(what, "update"), plain(compare(theirs.Updated,
				ourFaults(ourcore.ValidatePersistentVolumeClaimUpdate(c, o))))) {
			bad++
		}
	}
}

func TestPersistentVolumeClaimStatusesAreJudgedAlike(t *testing.T) {
	r := random(t)
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		old := &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "default", ResourceVersion: "1"},
			Spec:       v1.PersistentVolumeClaimSpec{AccessModes: []v1.PersistentVolumeAccessMode{"ReadWriteOnce"}},
			Status: v1.PersistentVolumeClaimStatus{Phase: "Bound", Capacity: amounts("storage", "2"),
				AllocatedResources: amounts("storage", "3")},
		}
		k := old.DeepCopy()
		what := alter(r, &k.Status, 1+r.IntN(3), func(p string) bool {
			return !strings.Contains(p, "Modify") &&
				!strings.Contains(p, "VolumeAttributes")
		})
		if r.IntN(2) == 0 {
			k.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{
				v1.ResourceName(pick(r, resourceNames)): v1.ClaimResourceStatus(pick(r,
					[]string{"ControllerResizeInProgress", "NodeResizePending", "NodeResizeInfeasible", "x", ""})),
			}
		}
		errs := ask[faults](t, "persistentvolumeclaim-statuses", k, old)
		c, err := ours(k, &corev1.PersistentVolumeClaim{})
		if err != nil {
			t.Fatal(err)
		}
		o, err := ours(old, &corev1.PersistentVolumeClaim{})
		if err != nil {
			t.Fatal(err)
		}
		ourcore.DefaultPersistentVolumeClaim(c)
		if report(t, what, compare(errs, ourFaults(ourcore.ValidatePersistentVolumeClaimStatusUpdate(c, o)))) {
			bad++
		}
	}
}

func TestStorageClassesAreJudgedAlike(t *testing.T) {
	base := func() *k8sstorage.StorageClass {
		return &k8sstorage.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: "s", ResourceVersion: "1"}, Provisioner: "example.com/p",
			Parameters: map[string]string{"a": "b"},
			AllowedTopologies: []v1.TopologySelectorTerm{
				{MatchLabelExpressions: []v1.TopologySelectorLabelRequirement{{Key: "zone", Values: []string{"a", "b"}},
					{Key: "rack", Values: []string{"c"}}}},
				{MatchLabelExpressions: []v1.TopologySelectorLabelRequirement{{Key: "zone", Values: []string{"c"}}}},
			},
		}
	}
	r := random(t)
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		old, k := base(), base()
		what := alter(r, k, r.IntN(4), nil)
		switch r.IntN(10) {
		case 0:
			k.ReclaimPolicy = ptr(v1.PersistentVolumeReclaimPolicy(pick(r, storageWords)))
		case 1:
			k.VolumeBindingMode = ptr(k8sstorage.VolumeBindingMode(pick(r, storageWords)))
		case 2:
			k.Parameters["big"] = strings.Repeat("x", 256<<10)
		case 3:
			old.VolumeBindingMode, k.VolumeBindingMode = ptr(k8sstorage.VolumeBindingWaitForFirstConsumer),
				ptr(k8sstorage.VolumeBindingImmediate)
		case 4:
			terms := k.AllowedTopologies
			if len(terms) > 0 {
				k.AllowedTopologies = append(terms, terms[0])
			}
		}
		theirs := ask[verdict](t, "storageclasses", k, old)
		c, err := ours(k, &storagev1.StorageClass{})
		if err != nil {
			t.Fatal(err)
		}
		o, err := ours(old, &storagev1.StorageClass{})
		if err != nil {
			t.Fatal(err)
		}
		ourstorage.DefaultStorageClass(c)
		ourstorage.DefaultStorageClass(o)
		keep(c.Metadata, o.Metadata)
		if report(t, append(what, "create"), compare(theirs.Created, ourFaults(ourstorage.ValidateStorageClass(c)))) ||
			report(t, append(what, "update"), compare(theirs.Updated,
				ourFaults(ourstorage.ValidateStorageClassUpdate(c, o)))) {
			bad++
		}
	}
}

package validation

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monoplane.dev/codec/value"

	metav1 "monoplane.dev/api/meta/v1"
)

// Warnings are what a client is told of an object that is taken all the same, in Kubernetes' words and order. They
// expect an object in which nothing is wrong.
type Warnings []string

// Add says something of a field.
func (w *Warnings) Add(p *Path, format string, args ...any) {
	*w = append(*w, p.String()+": "+fmt.Sprintf(format, args...))
}

// Say says something of the object.
func (w *Warnings) Say(format string, args ...any) { *w = append(*w, fmt.Sprintf(format, args...)) }

// IP warns of an address that is not written as addresses are.
func (w *Warnings) IP(p *Path, ip string) {
	*w = append(*w, utilvalidation.GetWarningsForIP(field.NewPath(p.String()), ip)...)
}

// CIDR warns of a range of addresses that is not written as ranges are, or may mean one address.
func (w *Warnings) CIDR(p *Path, cidr string) {
	*w = append(*w, utilvalidation.GetWarningsForCIDR(field.NewPath(p.String()), cidr)...)
}

// WholeBytes warns of an amount of bytes with a fraction, if the list has the resource.
func (w *Warnings) WholeBytes(list *Path, amounts map[string]*metav1.Quantity, resource string) {
	text, ok := amounts[resource]
	if !ok {
		return
	}
	if q, err := value.Quantity(text); err == nil && q.MilliValue()%1000 != 0 {
		w.Add(list.Key(resource), "fractional byte value %q is invalid, must be an integer", q.String())
	}
}

// NamesPods warns of an object's name that those of its pods begin with, but hosts cannot have.
func (w *Warnings) NamesPods(name string) {
	if msgs := utilvalidation.IsDNS1123Label(name); len(msgs) > 0 {
		w.Say("metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; "+
			"a DNS label is recommended: %v", msgs)
	}
}

// OldSource warns of a volume whose driver is no more. The path is that of what has the source.
func (w *Warnings) OldSource(p *Path, source proto.Message) {
	for _, name := range SourcesSet(source) {
		if text, old := oldSources[name]; old {
			w.Add(p.Child(strings.Replace(name, "storageos", "storageOS", 1)), "%s", text) // as Kubernetes writes it here
		}
	}
}

var oldSources = map[string]string{
	"cephfs":               "deprecated in v1.28, non-functional in v1.31+",
	"flocker":              "deprecated in v1.22, non-functional in v1.25+",
	"gitRepo":              "deprecated in v1.11, and disabled by default in v1.33+",
	"glusterfs":            "deprecated in v1.25, non-functional in v1.26+",
	"photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
	"quobyte":              "deprecated in v1.22, non-functional in v1.25+",
	"rbd":                  "deprecated in v1.28, non-functional in v1.31+",
	"scaleIO":              "deprecated in v1.16, non-functional in v1.22+",
	"storageos":            "deprecated in v1.22, non-functional in v1.25+",
}

// OldNodeLabel returns what there is to say of a label of nodes that has another name since.
func OldNodeLabel(key string) (text string, old bool) {
	text, old = oldNodeLabels[key]
	return text, old
}

var oldNodeLabels = map[string]string{
	"beta.kubernetes.io/arch":                       since("v1.14", "kubernetes.io/arch"),
	"beta.kubernetes.io/os":                         since("v1.14", "kubernetes.io/os"),
	"failure-domain.beta.kubernetes.io/region":      since("v1.17", "topology.kubernetes.io/region"),
	"failure-domain.beta.kubernetes.io/zone":        since("v1.17", "topology.kubernetes.io/zone"),
	"beta.kubernetes.io/instance-type":              since("v1.17", "node.kubernetes.io/instance-type"),
	"app.kubernetes.io/created-by":                  "deprecated since v1.9",
	"scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; use Taints and Tolerations instead",
	"node-role.kubernetes.io/master":                `use "node-role.kubernetes.io/control-plane" instead`,
}

func since(version, instead string) string {
	return fmt.Sprintf("deprecated since %s; use %q instead", version, instead)
}

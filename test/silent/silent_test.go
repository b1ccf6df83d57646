// Package silent_test checks the promise of SCOPE.md that no field is ignored in silence: a field of an object that
// users write is refused, answered with a warning, read by a component, or explained here. What a component does with
// what it reads is for its own tests.
package silent_test

import (
	"maps"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	optionsv1 "monoplane.dev/api/options/v1"
	"monoplane.dev/api/services"
)

// notes are the kinds that are not looked at: notes of programs for each other, which the server keeps, questions that
// it answers, what it alone says, and Services, which are kept for whoever carries their traffic.
var notes = map[string]bool{
	"Event": true, "Lease": true, "PlacementReview": true, "TokenReview": true, "SelfSubjectReview": true,
	"SubjectAccessReview": true, "LocalSubjectAccessReview": true, "SelfSubjectAccessReview": true,
	"SelfSubjectRulesReview": true,
	"NodeMetrics":            true, "PodMetrics": true,
	"Service":   true,
	"Endpoints": true, "EndpointSlice": true,
	"Ingress": true, "IngressClass": true, "NetworkPolicy": true, // answered with a warning
	"ServiceCIDR": true, "IPAddress": true, // answered with a warning
	"FlowSchema": true, "PriorityLevelConfiguration": true, // answered with a warning
}

// explained says, for fields that no component reads, why they are not ignored.
var explained = map[string]string{
	"ObjectFieldSelector.apiVersion":                       "validation knows one version",
	"LocalVolumeSource.fsType":                             "a local volume is a directory: devices are not formatted",
	"EphemeralContainerCommon.restartPolicy":               "validation refuses it",
	"PodSpec.serviceAccount":                               "kept equal to serviceAccountName",
	"WindowsSecurityContextOptions.gmsaCredentialSpecName": "no node runs Windows: agents refuse such pods",
	"WindowsSecurityContextOptions.gmsaCredentialSpec":     "no node runs Windows: agents refuse such pods",
	"WindowsSecurityContextOptions.runAsUserName":          "no node runs Windows: agents refuse such pods",
	"WindowsSecurityContextOptions.hostProcess":            "no node runs Windows: agents refuse such pods",
	"PodSecurityContext.seLinuxChangePolicy":               "\"Recursive\", the only value, is what runtimes do",
	"NodeSpec.externalID":                                  "for information, in Kubernetes too",
	"NodeSpec.providerID":                                  "for information, in Kubernetes too",
	"Taint.timeAdded":                                      "for information",
	"PodSpec.automountServiceAccountToken":                 "the server gives the pod a volume with a token, or none",
	"ServiceAccount.automountServiceAccountToken":          "the server gives pods a volume with a token, or none",
	"Secret.stringData":                                    "the server makes it part of data",
	"CertificateSigningRequestSpec.extra":                  "for who approves",
	"CertificateSigningRequestSpec.groups":                 "for who approves",
	"CertificateSigningRequestSpec.uid":                    "for who approves",
	"CertificateSigningRequestSpec.username":               "for who approves; written and shown by the server",
	"RuntimeClass.overhead":                                "the server gives it to pods",
	"RuntimeClass.scheduling":                              "the server gives it to pods",
	"VolumeResourceRequirements.limits":                    "not enforced, in Kubernetes too",
	"StorageClass.allowVolumeExpansion":                    "the server lets claims ask for more, and warns that they do not get it",
	"JobSpec.manualSelector":                               "the server makes the selector, or leaves it as it is",
	"MetricTarget.type":                                    "which of the other fields is given says the same",
	"PriorityClass.description":                            "for people",
	"Subject.apiGroup":                                     "validation knows one for each kind of subject",
	"RoleRef.apiGroup":                                     "validation knows one group",
	"Quantity.string":                                      "package codec/value reads it for all",
}

// acting are the packages whose reading of a field is an effect. In those of the server most reading is bookkeeping.
var acting = []string{"./nodeagent/...", "./scheduler/...", "./controllers/...", "./object/...", "./rules/...",
	"./apiserver/kinds/scheduling/priority", "./apiserver/kinds/core/pod/eviction",
	"./apiserver/auth/roles", "./apiserver/admission/..."}

// views are the packages that turn objects of another version into what is stored, in whose fields they take effect.
var views = []string{"./apiserver/kinds/autoscaling"}

// spec: OBJ-4
func TestNoFieldIsSilent(t *testing.T) {
	read, viewed := reads(t, "../..", acting...), reads(t, "../..", views...)
	left := maps.Clone(explained)
	seen := map[protoreflect.FullName]bool{}
	for _, svc := range services.All() {
		if notes[svc.Kind.Kind] {
			continue
		}
		m := svc.Kind.New()
		eachField(m.ProtoReflect().Descriptor(), true, seen, func(fd protoreflect.FieldDescriptor) (below bool) {
			name := string(fd.ContainingMessage().Name()) + "." + string(fd.Name())
			leaf := fd.Message() == nil || fd.IsMap() || fd.Message().Fields().Len() == 0
			_, known := explained[name]
			delete(left, name)
			is := read[goName(fd)]
			if svc.Kind.View {
				is = viewed[goName(fd)]
			}
			switch {
			case known && is:
				t.Errorf("%s is read: it needs no explanation", name)
			case !known && !is && leaf:
				t.Errorf("%s is served in full, as its support option says, but no component reads it", name)
			}
			return !known && !leaf
		})
	}
	for name := range left {
		t.Errorf("%s is explained, but is no field that is served in full", name)
	}
	if len(seen) < 30 {
		t.Errorf("only %d messages were looked at", len(seen))
	}
}

// eachField calls f once for each field in or below a message that is served in full, and goes on below where f says
// so. Metadata, and an object's status, are left out: the one is the same for all kinds, and users do not write the
// other.
func eachField(
	d protoreflect.MessageDescriptor, object bool, seen map[protoreflect.FullName]bool,
	f func(protoreflect.FieldDescriptor) bool,
) {
	if seen[d.FullName()] {
		return
	}
	seen[d.FullName()] = true
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		if fd.Name() == "metadata" || object && fd.Name() == "status" {
			continue
		}
		support, _ := proto.GetExtension(fd.Options(), optionsv1.E_Support).(optionsv1.Support)
		if support != optionsv1.Support_REFUSED && support != optionsv1.Support_STORED && f(fd) {
			eachField(fd.Message(), false, seen, f)
		}
	}
}

// goName is a field as reads writes it.
func goName(fd protoreflect.FieldDescriptor) string {
	m := fd.ContainingMessage()
	pkg := strings.ReplaceAll(strings.TrimPrefix(string(m.ParentFile().Package()), "monoplane."), ".", "/")
	name := string(fd.Name())
	return "monoplane.dev/api/" + pkg + "." + string(m.Name()) + "." + strings.ToUpper(name[:1]) + name[1:]
}

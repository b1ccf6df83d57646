package static

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec"
	"monoplane.dev/rules/podrefs"
	"monoplane.dev/rules/staticpod"
	"monoplane.dev/rules/taints"
)

// Origin is where a manifest is.
type Origin struct {
	// Kind is "file" or "http", as the annotation staticpod.Source has it.
	Kind string
	// Path is the file or the URL.
	Path string
}

// The kinds of origins.
const (
	File = "file"
	HTTP = "http"
)

// uidLength is the length of a static pod's uid. Those that a server gives are longer, and have dashes.
const uidLength = 32

// IsUID reports whether a uid is one that a static pod can have, and no server gives.
func IsUID(uid string) bool { return len(uid) == uidLength && !strings.Contains(uid, "-") }

// finish makes a static pod of what a manifest says: what identifies it, what keeps it on its node, and, by Complete,
// what a server would have added.
func (c *Config) finish(p *corev1.Pod, from Origin, now time.Time) error {
	given := p.GetMetadata()
	if given.GetName() == "" {
		return errors.New("metadata.name is missing")
	}
	sum := sha256.New()
	_, _ = sum.Write(codec.AppendObject(nil, p)) // it never fails
	_, _ = fmt.Fprintf(sum, "%s\x00%s\x00%s", c.NodeName, from.Kind, from.Path)
	uid := hex.EncodeToString(sum.Sum(nil)[:uidLength/2])

	meta := &metav1.ObjectMeta{
		Name: given.GetName() + "-" + strings.ToLower(c.NodeName), Namespace: given.GetNamespace(), Uid: uid,
		Labels: given.GetLabels(), Annotations: map[string]string{}, CreationTimestamp: &metav1.Time{Seconds: now.Unix()},
		Generation: 1,
	}
	if meta.Namespace == "" {
		meta.Namespace = "default"
	}
	for k, v := range given.GetAnnotations() {
		meta.Annotations[k] = v
	}
	delete(meta.Annotations, staticpod.Mirror) // that is the mirror's
	meta.Annotations[staticpod.Hash] = uid
	meta.Annotations[staticpod.Source] = from.Kind
	meta.Annotations[staticpod.Seen] = now.UTC().Format(time.RFC3339Nano)
	p.Metadata = meta
	if p.Spec == nil {
		p.Spec = &corev1.PodSpec{}
	}
	p.Spec.NodeName = c.NodeName
	tolerateAll(p.Spec)
	if what := podrefs.Any(p.Spec); what != "" {
		return fmt.Errorf("static pods may not refer to %s: they run without a server", what)
	}
	return c.Complete(p)
}

// tolerateAll lets a static pod stay whatever taints its node gets: nobody could make it again elsewhere.
func tolerateAll(s *corev1.PodSpec) {
	for _, t := range s.GetTolerations() {
		if t.GetKey() == "" && t.GetOperator() == "Exists" && t.GetEffect() == taints.NoExecute {
			return
		}
	}
	s.Tolerations = append(s.Tolerations, &corev1.Toleration{Operator: "Exists", Effect: taints.NoExecute})
}

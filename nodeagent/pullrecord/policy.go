package pullrecord

import (
	"fmt"
	"strings"
)

// The values of Policy.Verification.
const (
	// NeverVerify gives an image that is on the node to all pods.
	NeverVerify = "NeverVerify"
	// NeverVerifyPreloadedImages does so with those that were not pulled by this node's agent.
	NeverVerifyPreloadedImages = "NeverVerifyPreloadedImages"
	// NeverVerifyAllowlistedImages does so with those that Policy.Allowed lists.
	NeverVerifyAllowlistedImages = "NeverVerifyAllowlistedImages"
	// AlwaysVerify gives an image only to pods with whose credentials, or without any, it was pulled.
	AlwaysVerify = "AlwaysVerify"
)

// Policy says for which images it counts with whose credentials they came.
type Policy struct {
	// Verification is NeverVerifyPreloadedImages when it is empty.
	Verification string
	// Allowed are repositories such as registry.example.com/team/app, and with /* at the end all below; for
	// NeverVerifyAllowlistedImages.
	Allowed []string
}

// Check returns what is wrong with the policy.
func (p Policy) Check() error {
	switch p.Verification {
	case "", NeverVerify, NeverVerifyPreloadedImages, AlwaysVerify:
		if len(p.Allowed) > 0 {
			return fmt.Errorf("images are listed that need no verification, which is for %s, not for %q",
				NeverVerifyAllowlistedImages, p.Verification)
		}
	case NeverVerifyAllowlistedImages:
		for _, pattern := range p.Allowed {
			name := strings.TrimSuffix(pattern, "/*")
			if name == "" || name != strings.TrimSpace(name) || strings.ContainsAny(name, "*@") || name != untagged(name) {
				return fmt.Errorf("%q is not a repository without tag and digest, which may end with /*", pattern)
			}
		}
	default:
		return fmt.Errorf("the credentials of images are verified by %q; it must be %s, %s, %s or %s", p.Verification,
			NeverVerify, NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages, AlwaysVerify)
	}
	return nil
}

// verifies says whether it counts for an image who pulled it; pulled says that this node's agent did.
func (p Policy) verifies(image string, pulled bool) bool {
	switch p.Verification {
	case NeverVerify:
		return false
	case AlwaysVerify:
		return true
	case NeverVerifyAllowlistedImages:
		return !p.allows(untagged(image))
	default:
		return pulled
	}
}

func (p Policy) allows(name string) bool {
	for _, pattern := range p.Allowed {
		if prefix, all := strings.CutSuffix(pattern, "*"); name == pattern || all && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// untagged returns an image's name without tag and digest.
func untagged(image string) string {
	name, _, _ := strings.Cut(image, "@")
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		name = name[:i]
	}
	return name
}

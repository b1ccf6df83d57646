package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/client/record"
	"monoplane.dev/nodeagent/pullsecret"
)

// imageName is what an image reference looks like: a registry, a path in lower case, a tag, a digest. The runtime has
// the last word.
var imageName = regexp.MustCompile(`^(([a-zA-Z0-9.-]+|\[[0-9a-fA-F:]+\])(:[0-9]+)?/)?` +
	`[a-z0-9]+((\.|_|__|-+|/)[a-z0-9]+)*` +
	`(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@[A-Za-z][A-Za-z0-9]*([+._-][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?$`)

// pull is an image that a container needs. Its events and reasons are those of Kubernetes.
type pull struct {
	job
	image   string
	sandbox *runtimeapi.PodSandboxConfig
}

// pullImage sees to it that the image is there and returns what the runtime calls it. spec: CTR-6
func (j job) pullImage(
	ctx context.Context, spec *corev1.Container, sandbox *runtimeapi.PodSandboxConfig,
) (ref, reason string, err error) {
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	p := pull{job: j, image: spec.GetImage(), sandbox: sandbox}
	if !imageName.MatchString(p.image) {
		return p.failed(ctx, "InspectFailed", "InvalidImageName", fmt.Sprintf(
			"Failed to apply default image tag %[1]q: couldn't parse image name %[1]q: invalid reference format", p.image))
	}
	if spec.GetImagePullPolicy() == "Always" {
		return p.pull(ctx)
	}
	have, err := j.agent.cfg.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: p.spec()})
	switch {
	case err != nil:
		return p.failed(ctx, "InspectFailed", "ImageInspectError",
			fmt.Sprintf("Failed to inspect image %q: %s", p.image, text(err)))
	case have.GetImage().GetId() != "":
		p.note("Pulled",
			fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", p.image))
		return have.GetImage().GetId(), "", nil
	case spec.GetImagePullPolicy() == "Never":
		return p.failed(ctx, "ErrImageNeverPull", "ErrImageNeverPull",
			fmt.Sprintf("Container image %q is not present with pull policy of Never", p.image))
	default:
		return p.pull(ctx)
	}
}

func (p pull) spec() *runtimeapi.ImageSpec {
	return &runtimeapi.ImageSpec{Image: p.image, UserSpecifiedImage: p.image}
}

// failed tells the user what is wrong, unless nobody waits for the image any more.
func (p pull) failed(ctx context.Context, event, reason, message string) (string, string, error) {
	if ctx.Err() == nil {
		p.agent.cfg.Recorder.Event(p.pod, record.Warning, event, "Pulling", message)
	}
	return "", reason, errors.New(message)
}

// note tells the user how it goes. Nobody looks at thousands of simulated pods, and their images are no news.
func (p pull) note(event, message string) {
	if !p.agent.cfg.Simulated {
		p.agent.cfg.Recorder.Event(p.pod, record.Normal, event, "Pulling", message)
	}
}

// pull asks the runtime for the image, with one after the other of the pod's credentials for it, or without when there
// are none.
func (p pull) pull(ctx context.Context) (ref, reason string, err error) {
	credentials := p.credentials(ctx)
	p.note("Pulling", fmt.Sprintf("Pulling image %q", p.image))
	began := time.Now()
	if len(credentials) == 0 {
		credentials = []*runtimeapi.AuthConfig{nil}
	}
	var errs []string
	for _, auth := range credentials {
		pulled, err := p.agent.cfg.Images.PullImage(ctx, &runtimeapi.PullImageRequest{
			Image: p.spec(), Auth: auth, SandboxConfig: p.sandbox,
		})
		if err == nil {
			p.notePulled(ctx, time.Since(began).Truncate(time.Millisecond))
			return pulled.GetImageRef(), "", nil
		}
		if said := redacted(text(err), auth); !slices.Contains(errs, said) {
			errs = append(errs, said)
		}
	}
	said := strings.Join(errs, ", ")
	if len(errs) > 1 {
		said = "[" + said + "]"
	}
	reason, message := pullReason(p.image, said)
	_, _, _ = p.failed(ctx, "Failed", reason, fmt.Sprintf("Failed to pull image %q: %s", p.image, said))
	return "", reason, errors.New(message)
}

// notePulled says how long a pull took, and how large the image is.
func (p pull) notePulled(ctx context.Context, took time.Duration) {
	if p.agent.cfg.Simulated {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	have, err := p.agent.cfg.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: p.spec()})
	if err != nil {
		p.warn(ctx, "the size of an image cannot be read", err)
	}
	p.note("Pulled", fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
		p.image, took, took, have.GetImage().GetSize()))
}

// credentials returns what the pod's Secrets have for the image. What cannot be read, or understood, is left out, and
// the user told: the image may be had without.
func (p pull) credentials(ctx context.Context) []*runtimeapi.AuthConfig {
	var keyring pullsecret.Keyring
	var failed []string
	for _, ref := range p.pod.GetSpec().GetImagePullSecrets() {
		if ref.GetName() == "" {
			continue
		}
		s, err := p.agent.objects.Secret(ctx, p.pod.GetMetadata().GetNamespace(), ref.GetName())
		if err == nil {
			err = keyring.Add(s)
		}
		if err != nil {
			p.warn(ctx, "a secret for pulling images cannot be used", err)
			failed = append(failed, ref.GetName())
		}
	}
	if len(failed) > 0 && ctx.Err() == nil {
		p.agent.cfg.Recorder.Event(p.pod, record.Warning, "FailedToRetrieveImagePullSecret", "Pulling", fmt.Sprintf(
			"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.",
			strings.Join(failed, ", ")))
	}
	return keyring.Lookup(p.image)
}

// redacted leaves a password out of what a runtime, or a registry, has said.
func redacted(said string, auth *runtimeapi.AuthConfig) string {
	const least = 4 // a shorter one is found in any text
	if secret := auth.GetPassword(); len(secret) >= least {
		return strings.ReplaceAll(said, secret, "<redacted>")
	}
	return said
}

// pullReason returns why a container waits after a pull has failed: the runtime begins what it says with a word of CRI
// when the registry does not answer, or a signature is not right.
func pullReason(image, said string) (reason, message string) {
	for word, what := range map[string]string{
		"RegistryUnavailable":       "the registry is unavailable",
		"SignatureValidationFailed": "the signature validation failed",
	} {
		if rest, ok := strings.CutPrefix(said, word); ok {
			return word, fmt.Sprintf("image pull failed for %s because %s%s", image, what, rest)
		}
	}
	return "ErrImagePull", said
}

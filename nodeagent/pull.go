package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/client/record"
	"monoplane.dev/nodeagent/pullrecord"
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
	image string
	// path names the container that wants it, for events; empty where the pod does.
	path    string
	sandbox *runtimeapi.PodSandboxConfig
	// credentials are the pod's for the image; they are looked for when they count, and once.
	credentials func() []pullsecret.Credential
}

// pullImage sees to it that an image is there, by a policy, and returns what the runtime calls it. path names the
// container that wants it, for events. spec: CTR-6
func (j job) pullImage(
	ctx context.Context, image, policy, path string, sandbox *runtimeapi.PodSandboxConfig,
) (ref, reason string, err error) {
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	p := pull{job: j, image: image, path: path, sandbox: sandbox}
	p.credentials = sync.OnceValue(func() []pullsecret.Credential { return p.find(ctx) })
	if !imageName.MatchString(p.image) {
		return p.failed(ctx, "InspectFailed", "InvalidImageName", fmt.Sprintf(
			"Failed to apply default image tag %[1]q: couldn't parse image name %[1]q: invalid reference format", p.image))
	}
	if policy == "Always" {
		return p.pull(ctx)
	}
	have, err := j.agent.cfg.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: p.spec()})
	switch {
	case err != nil:
		return p.failed(ctx, "InspectFailed", "ImageInspectError",
			fmt.Sprintf("Failed to inspect image %q: %s", p.image, text(err)))
	case have.GetImage().GetId() != "" && p.mayUse(have.GetImage()):
		p.note("Pulled",
			fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", p.image))
		return have.GetImage().GetId(), "", nil
	case policy == "Never": // nobody is told of images that others have pulled
		return p.failed(ctx, "ErrImageNeverPull", "ErrImageNeverPull",
			fmt.Sprintf("Container image %q is not present with pull policy of Never", p.image))
	default:
		return p.pull(ctx)
	}
}

func (p pull) spec() *runtimeapi.ImageSpec {
	return &runtimeapi.ImageSpec{Image: tagged(p.image), UserSpecifiedImage: p.image}
}

// tagged returns the name of an image with the tag that is meant where it has none, as kubelets name images to
// runtimes, which may take a bare name for the beginning of another image's id.
func tagged(image string) string {
	if strings.ContainsAny(image[strings.LastIndexByte(image, '/')+1:], ":@") {
		return image
	}
	return image + ":latest"
}

// failed tells the user what is wrong, unless nobody waits for the image any more.
func (p pull) failed(ctx context.Context, event, reason, message string) (string, string, error) {
	if ctx.Err() == nil {
		p.agent.cfg.Recorder.EventIn(p.pod, p.path, record.Warning, event, "Pulling", message)
	}
	return "", reason, errors.New(message)
}

// note tells the user how it goes. Nobody looks at thousands of simulated pods, and their images are no news.
func (p pull) note(event, message string) {
	if !p.agent.cfg.Simulated {
		p.agent.cfg.Recorder.EventIn(p.pod, p.path, record.Normal, event, "Pulling", message)
	}
}

// pull asks the runtime for the image, with one after the other of the pod's credentials for it, or without when there
// are none.
func (p pull) pull(ctx context.Context) (ref, reason string, err error) {
	credentials := p.credentials()
	records := p.agent.pulled
	p.note("Pulling", fmt.Sprintf("Pulling image %q", p.image))
	began := time.Now()
	secret := len(credentials) > 0 && records != nil
	if len(credentials) == 0 {
		credentials = []pullsecret.Credential{{}}
	}
	if secret {
		if err := records.Begin(p.image); err != nil {
			return p.failed(ctx, "Failed", "ErrImagePull", err.Error())
		}
	}
	var errs []string
	unclear := false
	for _, c := range credentials {
		pulled, err := p.agent.cfg.Images.PullImage(ctx, &runtimeapi.PullImageRequest{
			Image: p.spec(), Auth: c.Auth, SandboxConfig: p.sandbox,
		})
		if err == nil {
			p.notePulled(ctx, time.Since(began).Truncate(time.Millisecond), pulled.GetImageRef(), c)
			return pulled.GetImageRef(), "", nil
		}
		unclear = unclear || isUnclear(err)
		if said := redacted(text(err), c.Auth); !slices.Contains(errs, said) {
			errs = append(errs, said)
		}
	}
	switch {
	case secret && unclear:
		records.Unclear(p.image)
	case secret:
		if err := records.Failed(p.image); err != nil {
			p.warn(ctx, "the record of a pull that has failed cannot be removed", err)
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

// isUnclear reports whether the image may come, or have come, in spite of an error. spec: SAFE-4
func isUnclear(err error) bool {
	switch status.Code(err) {
	case codes.DeadlineExceeded, codes.Canceled, codes.Unavailable:
		return true
	default:
		return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	}
}

// mayUse reports whether the pod may use an image that is there: those that came with credentials are for pods that
// have some for it, too.
func (p pull) mayUse(have *runtimeapi.Image) bool {
	return p.agent.pulled == nil || p.agent.pulled.MayUse(p.image, have, func() []pullrecord.Secret {
		var out []pullrecord.Secret
		for _, c := range p.credentials() {
			out = append(out, pullrecord.SecretOf(c))
		}
		return out
	})
}

// notePulled notes with which credentials an image came that the runtime calls ref, and says how long that took, and
// how large the image is.
func (p pull) notePulled(ctx context.Context, took time.Duration, ref string, with pullsecret.Credential) {
	if p.agent.cfg.Simulated {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	have, err := p.agent.cfg.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: p.spec()})
	if err != nil {
		p.warn(ctx, "the size of an image cannot be read", err)
	}
	if id := have.GetImage().GetId(); id != "" {
		ref = id
	}
	if p.agent.pulled != nil {
		var secret *pullrecord.Secret
		if with.Auth != nil {
			s := pullrecord.SecretOf(with)
			secret = &s
		}
		if err := p.agent.pulled.Succeeded(p.image, ref, secret); err != nil {
			p.warn(ctx, "pods may have to pull an image again that they may use", err)
		}
	}
	p.note("Pulled", fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
		p.image, took, took, have.GetImage().GetSize()))
}

// find returns what the pod's Secrets have for the image. What cannot be read, or understood, is left out, and
// the user told: the image may be had without.
func (p pull) find(ctx context.Context) []pullsecret.Credential {
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
			rest = strings.Replace(rest, ": "+what+": ", ": ", 1) // The runtime may say so itself.
			return word, fmt.Sprintf("image pull failed for %s because %s%s", image, what, rest)
		}
	}
	return "ErrImagePull", said
}

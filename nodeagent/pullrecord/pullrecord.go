// Package pullrecord remembers with whose credentials the images of a node came there, so that a pod is not given an
// image that is on the node only because another pod may pull it.
//
// It keeps the records of Kubernetes' agent, in the same form: that an image is being pulled (pulling/), and for each
// image that was pulled (pulled/), by the repository it came from, which Secrets it was pulled with, by where they are
// and by a hash of the credentials, or that it came without. An image without any record was there before, and is for
// all pods unless the Policy says otherwise; so is a name by which an image was loaded and not pulled.
//
// Guarantees:
//
//   - Before a pull with credentials begins there is a durable record of it, so that no crash makes an image that came
//     with credentials look as if it had been there before. The record of a pull whose outcome is not known stays.
//   - What cannot be read or written makes an image less accessible, never more.
//
// It does not pull, and knows no registry: a pod that may not use an image may always pull it with what it has. All
// methods are safe for concurrent use.
package pullrecord

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/internal/datadir"
	"monoplane.dev/nodeagent/pullsecret"
)

// apiVersion is that of the records' form.
const apiVersion = "kubelet.config.k8s.io/v1beta1"

// mostLearned bounds the Secrets of a record to which more are added for nothing but having the same credentials.
const mostLearned = 100

// Secret is where credentials come from, and what they are.
type Secret struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Hash is of the credentials.
	Hash string `json:"credentialHash"`
}

// SecretOf returns what is kept of credentials.
func SecretOf(c pullsecret.Credential) Secret {
	// The parts are kept apart: the lengths of both are in it.
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%s%d:%s", len(c.Auth.GetUsername()), c.Auth.GetUsername(),
		len(c.Auth.GetPassword()), c.Auth.GetPassword()))
	return Secret{UID: c.UID, Namespace: c.Namespace, Name: c.Name, Hash: hex.EncodeToString(sum[:])}
}

func (s Secret) sameObject(o Secret) bool {
	return s.UID == o.UID && s.Namespace == o.Namespace && s.Name == o.Name
}

// access is who may use an image by the name of one repository.
type access struct {
	Secrets []Secret `json:"kubernetesSecrets,omitempty"`
	// Everyone says that it was pulled without credentials.
	Everyone bool `json:"nodePodsAccessible,omitempty"`
}

// pulled is the record of an image that was pulled.
type pulled struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Updated    time.Time `json:"lastUpdatedTime"`
	Ref        string    `json:"imageRef"`
	// Credentials are by repository.
	Credentials map[string]access `json:"credentialMapping,omitempty"`
}

// intent is the record of an image that is being pulled.
type intent struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Image      string `json:"image"`
}

// Records are those of one node.
type Records struct {
	policy          Policy
	dir             string
	mu              sync.Mutex
	pulling, pulled *datadir.Dir
	// pulls counts the pulls that go on, by the image's full name.
	pulls map[string]int
}

// New returns the records in a directory, which is made when the first one is written.
func New(dir string, policy Policy) *Records {
	return &Records{policy: policy, dir: dir, pulls: make(map[string]int)}
}

// open makes the directories. The caller holds the lock.
func (r *Records) open() error {
	if r.pulled != nil {
		return nil
	}
	pulling, err := datadir.Make(filepath.Join(r.dir, "pulling"))
	if err != nil {
		return err
	}
	done, err := datadir.Make(filepath.Join(r.dir, "pulled"))
	if err != nil {
		return err
	}
	if err := errors.Join(datadir.Sweep(pulling.Path()), datadir.Sweep(done.Path())); err != nil {
		return err
	}
	r.pulling, r.pulled = pulling, done
	return nil
}

// Begin notes that an image is about to be pulled with credentials. An image must not be pulled when that fails. After
// it comes Succeeded, Failed or, when it is not known what became of the pull, Unclear.
func (r *Records) Begin(image string) error {
	full := fullName(image)
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.open()
	if err == nil {
		err = write(r.pulling, full, intent{apiVersion, "ImagePullIntent", full})
	}
	if err != nil {
		return fmt.Errorf("note that image %q is being pulled: %w", image, err)
	}
	r.pulls[full]++
	return nil
}

// Unclear ends what Begin has begun without saying how: the image may be there or come yet.
func (r *Records) Unclear(image string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over(fullName(image))
}

// Failed ends what Begin has begun: the image did not come.
func (r *Records) Failed(image string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.forget(fullName(image))
}

// over counts one pull less and reports whether none goes on. The caller holds the lock.
func (r *Records) over(full string) bool {
	if r.pulls[full]--; r.pulls[full] > 0 {
		return false
	}
	delete(r.pulls, full)
	return true
}

// forget is over, and removes the note with the last pull. The caller holds the lock.
func (r *Records) forget(full string) error {
	if !r.over(full) {
		return nil
	}
	return r.pulling.Remove(fileOf(full))
}

// Succeeded ends what Begin has begun, if with is not nil: the runtime has the image as ref, and it came with those
// credentials. Without, it came without any, which needs no Begin.
func (r *Records) Succeeded(image, ref string, with *Secret) error {
	add := access{Everyone: with == nil}
	if with != nil {
		add.Secrets = []Secret{*with}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.open()
	if err == nil {
		err = r.add(pullsecret.Repository(image), ref, add)
	}
	if err != nil {
		if with != nil {
			r.over(fullName(image)) // the note stays in place of the record
		}
		return fmt.Errorf("note who may use image %q: %w", image, err)
	}
	if with == nil {
		return nil
	}
	return r.forget(fullName(image))
}

// MayUse reports whether a pod may use an image that the runtime has: with are the credentials that the pod has for
// it, asked for when they count.
func (r *Records) MayUse(image string, have *runtimeapi.Image, with func() []Secret) bool {
	if r.policy.Verification == NeverVerify {
		return true
	}
	r.mu.Lock()
	known, err := r.record(have.GetId())
	ours := err != nil || (known != nil || r.beingPulled(image, have)) && !known.lacks(image, have)
	r.mu.Unlock()
	if !r.policy.verifies(image, ours) {
		return true
	}
	if known == nil {
		return false
	}
	repository := pullsecret.Repository(image)
	granted, ok := known.Credentials[repository]
	if !ok || granted.Everyone {
		return ok
	}
	for _, s := range with() {
		for _, g := range granted.Secrets {
			if s.Hash != g.Hash && !s.sameObject(g) {
				continue
			}
			if s != g && len(granted.Secrets) < mostLearned {
				r.mu.Lock()
				// One that is not learned is asked for again.
				_ = r.add(repository, have.GetId(), access{Secrets: []Secret{s}})
				r.mu.Unlock()
			}
			return true
		}
	}
	return false
}

// lacks reports whether an image has come by this name without a registry, such as from an archive: the runtime, which
// knows by which digests others have been pulled, knows none of this name's repository, and neither does the record.
// It was there for all pods, and is, whichever pod has pulled the same image by another name.
func (p *pulled) lacks(image string, have *runtimeapi.Image) bool {
	full, repository := fullName(image), pullsecret.Repository(image)
	if p == nil || len(have.GetRepoDigests()) == 0 {
		return false
	}
	_, granted := p.Credentials[repository]
	return !granted &&
		slices.ContainsFunc(have.GetRepoTags(), func(tag string) bool { return fullName(tag) == full }) &&
		!slices.ContainsFunc(have.GetRepoDigests(), func(digest string) bool {
			return pullsecret.Repository(digest) == repository
		})
}

// beingPulled reports whether a pull of the image, by any of its names, began and was not seen to end. The caller
// holds the lock.
func (r *Records) beingPulled(image string, have *runtimeapi.Image) bool {
	for _, name := range slices.Concat([]string{image}, have.GetRepoTags(), have.GetRepoDigests()) {
		full := fullName(name)
		if r.pulls[full] > 0 {
			return true
		}
		if _, err := os.Lstat(filepath.Join(r.dir, "pulling", fileOf(full))); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

// record returns that of an image, nil if there is none. The caller holds the lock.
func (r *Records) record(ref string) (*pulled, error) {
	path := filepath.Join(r.dir, "pulled")
	if r.pulled == nil {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err := r.open(); err != nil {
			return nil, err
		}
	}
	text, err := r.pulled.ReadFile(fileOf(ref))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p := &pulled{}
	if err := json.Unmarshal(text, p); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(path, fileOf(ref)), err)
	}
	return p, nil
}

// add lets more use an image. The caller holds the lock.
func (r *Records) add(repository, ref string, more access) error {
	p, err := r.record(ref)
	if p == nil || err != nil { // one that cannot be read is of no use
		p = &pulled{APIVersion: apiVersion, Kind: "ImagePulledRecord", Ref: ref}
	}
	now, ok := p.Credentials[repository]
	next := now.with(more)
	if ok && err == nil && next.Everyone == now.Everyone && slices.Equal(next.Secrets, now.Secrets) {
		return nil
	}
	if p.Credentials == nil {
		p.Credentials = make(map[string]access)
	}
	p.Credentials[repository], p.Updated = next, time.Now()
	return write(r.pulled, ref, p)
}

// with returns who may use an image when more may. Of each Secret the newest credentials count.
func (a access) with(more access) access {
	if a.Everyone || more.Everyone {
		return access{Everyone: true}
	}
	out := access{Secrets: slices.Clone(a.Secrets)}
	for _, s := range more.Secrets {
		if i := slices.IndexFunc(out.Secrets, s.sameObject); i >= 0 {
			out.Secrets[i] = s
		} else {
			out.Secrets = append(out.Secrets, s)
		}
	}
	return out
}

// Prune forgets the images that the runtime no longer has: refs are those that it had at a time. What was noted since
// stays.
func (r *Records) Prune(refs []string, at time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	dir := filepath.Join(r.dir, "pulled")
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	keep := make(map[string]bool, len(refs))
	for _, ref := range refs {
		keep[fileOf(ref)] = true
	}
	errs := []error{err}
	for _, f := range files {
		if keep[f.Name()] {
			continue
		}
		path := filepath.Join(dir, f.Name())
		var p pulled
		text, err := os.ReadFile(path) //nolint:gosec // a file of ours
		if err != nil || json.Unmarshal(text, &p) == nil && !p.Updated.Before(at) {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, os.Remove(path))
	}
	return errors.Join(errs...)
}

func write(dir *datadir.Dir, key string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := dir.Write(fileOf(key), text); err != nil {
		return err
	}
	return dir.Sync()
}

// fileOf returns the name of the file with the record of an image.
func fileOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "sha256-" + hex.EncodeToString(sum[:])
}

// fullName returns the name of an image with its registry and its digest, or else its tag.
func fullName(image string) string {
	repository := pullsecret.Repository(image)
	name, digest, ok := strings.Cut(image, "@")
	if ok {
		return repository + "@" + digest
	}
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		return repository + name[i:]
	}
	return repository + ":latest"
}

// Package tokens gets the tokens of the service accounts of a node's pods, each bound to its pod, from the API.
//
// What it guarantees:
//   - A token is asked for once: whoever wants the same (of a pod, for an audience, of a length) gets the same, while
//     its first four fifths last, a day at most, less up to ten seconds that differ from token to token, so that pods
//     which started together do not all ask at once. Then a new one is asked for, and while there is none, the old one
//     does until it ends.
//   - At most one request is under way for a token. It goes on when those who wait for it give up, but not for ever,
//     and not after Close.
//   - What is remembered is bounded, and forgotten with its pod. Neither logs nor errors have tokens in them.
//
// What it does not do: it tells nobody that a token is about to end. Who has given one to a pod asks again in time.
//
//	m := tokens.New(tokens.Config{Accounts: client.ServiceAccounts})
//	token, expires, err := m.Token(ctx, pod, "vault", 3600)
//	...
//	m.Forget(uid) // the pod is gone
//	...
//	m.Close()
package tokens

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	authenticationv1 "monoplane.dev/api/authentication/v1"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
)

const (
	// renewAfter is the longest that a token is used, whatever its life.
	renewAfter = 24 * time.Hour
	// maxJitter is by how much at most a token is renewed earlier.
	maxJitter = 10 * time.Second
	// callTimeout bounds a request.
	callTimeout = 30 * time.Second
	// defaultMax is the most tokens that are remembered.
	defaultMax = 4096
)

// Config says what a Manager works with. Accounts is required.
type Config struct {
	// Accounts reaches the API.
	Accounts corev1rpc.ServiceAccountsClient
	// Max is the most tokens that are remembered, 4096 when 0. What has no room is issued all the same.
	Max int
	// Seed makes the jitter repeatable; 0 takes a random one.
	Seed uint64
	// Logger is told when a token cannot be renewed; nil discards.
	Logger *slog.Logger
}

// Manager gets tokens and remembers them. Make one with New. It is safe for concurrent use.
type Manager struct {
	cfg Config
	// running ends with Close, which waits for asking.
	running context.Context
	close   context.CancelFunc
	asking  sync.WaitGroup

	mu     sync.Mutex
	jitter *rand.Rand
	// pods has the tokens of each pod by its uid.
	pods map[string]map[key]*entry
	// count is how many tokens there are.
	count int
}

// key tells the tokens of a pod apart.
type key struct {
	audience string
	seconds  int64
}

// entry is a token, or the wish for one:
//
//	(new) --ask--> asked --failed--> (forgotten)
//	                 |                    ^ ended, or the pod is gone
//	                 +--issued--> good ---+
//	                      ^        | four fifths of its life are over
//	                      +--asked-+--failed--> good, until it ends
type entry struct {
	token string
	// renew and expires are times of this machine's clock.
	renew, expires time.Time
	// asking is the request that is under way, nil when there is none.
	asking *request
}

// request is what several may wait for. Its result may be read once done is closed.
type request struct {
	done    chan struct{}
	token   string
	expires time.Time
	err     error
}

// New returns a Manager.
func New(cfg Config) *Manager {
	if cfg.Max <= 0 {
		cfg.Max = defaultMax
	}
	if cfg.Seed == 0 {
		cfg.Seed = rand.Uint64()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Manager{cfg: cfg, jitter: rand.New(rand.NewPCG(cfg.Seed, cfg.Seed)), pods: make(map[string]map[key]*entry)}
	m.running, m.close = context.WithCancel(context.Background())
	return m
}

// Close ends the requests that are under way, and returns once they have ended. Nobody gets a token any more.
func (m *Manager) Close() {
	m.mu.Lock()
	m.close() // from here on asking only falls
	m.mu.Unlock()
	m.asking.Wait()
}

// Token returns a token of the pod's service account that is bound to the pod, and when it expires by this machine's
// clock. An empty audience stands for the API server.
func (m *Manager) Token(
	ctx context.Context, pod *corev1.Pod, audience string, expirationSeconds int64,
) (token string, expires time.Time, err error) {
	if pod.GetSpec().GetServiceAccountName() == "" {
		return "", time.Time{}, errors.New("the pod has no service account, whose token it could have")
	}
	k := key{audience, expirationSeconds}
	m.mu.Lock()
	if err := m.running.Err(); err != nil {
		m.mu.Unlock()
		return "", time.Time{}, err
	}
	e := m.entryOf(pod.GetMetadata().GetUid(), k)
	now := time.Now()
	if e.token != "" && now.Before(e.renew) {
		defer m.mu.Unlock()
		return e.token, e.expires, nil
	}
	r := e.asking
	if r == nil {
		r = &request{done: make(chan struct{})}
		e.asking = r
		m.asking.Go(func() { m.ask(m.running, pod, k, e, r) })
	}
	m.mu.Unlock()
	select {
	case <-r.done:
		return r.token, r.expires, r.err
	case <-ctx.Done():
		return "", time.Time{}, ctx.Err()
	}
}

// Forget forgets the tokens of a pod that is gone.
func (m *Manager) Forget(uid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count -= len(m.pods[uid])
	delete(m.pods, uid)
}

// entryOf returns what is known of a token of a pod, and makes room for it if it is new. The caller holds the lock.
func (m *Manager) entryOf(uid string, k key) *entry {
	if e := m.pods[uid][k]; e != nil {
		return e
	}
	if m.count >= m.cfg.Max {
		m.makeRoom()
	}
	e := &entry{}
	if m.count >= m.cfg.Max {
		return e // all others are being asked for
	}
	if m.pods[uid] == nil {
		m.pods[uid] = make(map[key]*entry, 1)
	}
	m.pods[uid][k] = e
	m.count++
	return e
}

// makeRoom forgets the token that ends first: its pod asks again. One that is being asked for stays. The caller holds
// the lock.
func (m *Manager) makeRoom() {
	var first *entry
	var of string
	var which key
	for uid, tokens := range m.pods {
		for k, e := range tokens {
			if e.asking == nil && (first == nil || e.expires.Before(first.expires)) {
				first, of, which = e, uid, k
			}
		}
	}
	if first != nil {
		m.drop(of, which, first)
	}
}

// drop forgets e, unless its pod has been forgotten meanwhile. The caller holds the lock.
func (m *Manager) drop(uid string, k key, e *entry) {
	if m.pods[uid][k] != e {
		return
	}
	delete(m.pods[uid], k)
	m.count--
	if len(m.pods[uid]) == 0 {
		delete(m.pods, uid)
	}
}

// ask gets a token for those who wait for r.
func (m *Manager) ask(ctx context.Context, pod *corev1.Pod, k key, e *entry, r *request) {
	token, life, err := m.call(ctx, pod, k)
	meta := pod.GetMetadata()
	m.mu.Lock()
	defer m.mu.Unlock()
	defer close(r.done)
	e.asking = nil
	now := time.Now()
	switch {
	case err == nil:
		early := time.Duration(m.jitter.Int64N(int64(maxJitter)))
		e.token, e.expires, e.renew = token, now.Add(life), now.Add(min(life*4/5, renewAfter)-early)
	case e.token != "" && now.Before(e.expires):
		m.cfg.Logger.Warn("a token of a pod could not be renewed; the old one does for now", "pod",
			meta.GetNamespace()+"/"+meta.GetName(), "uid", meta.GetUid(), "expires", e.expires, "error", err)
	default:
		m.drop(meta.GetUid(), k, e)
		r.err = err
		return
	}
	r.token, r.expires = e.token, e.expires
}

// call asks the API for a token, and returns it with its life.
func (m *Manager) call(ctx context.Context, pod *corev1.Pod, k key) (string, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	meta := pod.GetMetadata()
	spec := &authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &k.seconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			ApiVersion: "v1", Kind: "Pod", Name: meta.GetName(), UID: meta.GetUid(),
		},
	}
	if k.audience != "" {
		spec.Audiences = []string{k.audience}
	}
	account := pod.GetSpec().GetServiceAccountName()
	answer, err := m.cfg.Accounts.CreateToken(ctx, &corev1rpc.CreateTokenServiceAccountRequest{
		Namespace: meta.GetNamespace(), Name: account, Object: &authenticationv1.TokenRequest{Spec: spec},
	})
	if err != nil {
		return "", 0, fmt.Errorf("get a token of service account %s/%s: %w", meta.GetNamespace(), account, err)
	}
	seconds := answer.GetSpec().GetExpirationSeconds()
	if answer.GetStatus().GetToken() == "" || seconds <= 0 {
		return "", 0, fmt.Errorf("get a token of service account %s/%s: the server's answer has none",
			meta.GetNamespace(), account)
	}
	return answer.GetStatus().GetToken(), time.Duration(seconds) * time.Second, nil
}

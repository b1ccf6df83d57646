package apiserver_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver"
	"monoplane.dev/apiserver/audit"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/kinds/core/nodekey"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/tokens"

	authenticationv1 "monoplane.dev/api/authentication/v1"
	authenticationv1rpc "monoplane.dev/api/authentication/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

const (
	serverAudience = "https://kubernetes.default.svc.cluster.local"
	tokenVolume    = "token"
)

// account creates a service account of namespace default.
func (c *cluster) account(name string) *corev1.ServiceAccount {
	c.t.Helper()
	return must(c.admin().ServiceAccounts.Create(c.t.Context(), &corev1rpc.CreateServiceAccountRequest{
		Object: &corev1.ServiceAccount{Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default"}},
	}))(c.t)
}

// tokenRequest asks for a token of the account "builder".
func tokenRequest(change ...func(*authenticationv1.TokenRequestSpec)) *corev1rpc.CreateTokenServiceAccountRequest {
	spec := &authenticationv1.TokenRequestSpec{}
	for _, f := range change {
		f(spec)
	}
	return &corev1rpc.CreateTokenServiceAccountRequest{
		Namespace: "default", Name: "builder", Object: &authenticationv1.TokenRequest{Spec: spec},
	}
}

func boundTo(kind, name, uid string) func(*authenticationv1.TokenRequestSpec) {
	return func(s *authenticationv1.TokenRequestSpec) {
		s.BoundObjectRef = &authenticationv1.BoundObjectReference{ApiVersion: "v1", Kind: kind, Name: name, UID: uid}
	}
}

func lasting(seconds int64) func(*authenticationv1.TokenRequestSpec) {
	return func(s *authenticationv1.TokenRequestSpec) { s.ExpirationSeconds = &seconds }
}

func forAudiences(audiences ...string) func(*authenticationv1.TokenRequestSpec) {
	return func(s *authenticationv1.TokenRequestSpec) { s.Audiences = audiences }
}

// token issues a token of the account "builder" as the administrator.
func (c *cluster) token(change ...func(*authenticationv1.TokenRequestSpec)) string {
	c.t.Helper()
	r := must(c.admin().ServiceAccounts.CreateToken(c.t.Context(), tokenRequest(change...)))(c.t)
	return r.GetStatus().GetToken()
}

// said returns the claims of a token.
func said(t *testing.T, token string) (header, claims map[string]any) {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("a token has %d parts", len(parts))
	}
	for i, into := range []*map[string]any{&header, &claims} {
		text, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, into); err != nil {
			t.Fatal(err)
		}
	}
	return header, claims
}

func (c *cluster) review(token string, audiences ...string) *authenticationv1.TokenReviewStatus {
	c.t.Helper()
	return must(c.admin().TokenReviews.Create(c.t.Context(), &authenticationv1rpc.CreateTokenReviewRequest{
		Object: &authenticationv1.TokenReview{Spec: &authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences}},
	}))(c.t).GetStatus()
}

// refused checks that a token is not valid, for a reason.
func (c *cluster) refused(token, why string, audiences ...string) {
	c.t.Helper()
	s := c.review(token, audiences...)
	if s.GetAuthenticated() || s.GetUser() != nil || !strings.Contains(s.GetError(), why) {
		c.t.Errorf("got %v, expected no user and %q", s, why)
	}
	if token != "" && strings.Contains(s.GetError(), token) {
		c.t.Error("the error repeats the token")
	}
}

func TestTokensSayWhatTheyAreFor(t *testing.T) {
	c := start(t)
	account := c.account("builder")
	r := must(c.admin().ServiceAccounts.CreateToken(ctx(t), tokenRequest()))(t)
	if r.GetMetadata().GetName() != "builder" || r.GetMetadata().GetUid() != account.GetMetadata().GetUid() ||
		r.GetSpec().GetExpirationSeconds() != 3600 || r.GetSpec().GetAudiences()[0] != serverAudience ||
		r.GetStatus().GetExpirationTimestamp().GetSeconds() != epoch.Add(time.Hour).Unix() {
		t.Errorf("the answer is %v %v", r.GetMetadata(), r.GetSpec())
	}
	header, claims := said(t, r.GetStatus().GetToken())
	if header["alg"] != "ES256" || header["kid"] == "" {
		t.Errorf("header %v", header)
	}
	at := float64(epoch.Unix())
	if claims["iss"] != serverAudience || claims["sub"] != "system:serviceaccount:default:builder" ||
		claims["iat"] != at || claims["nbf"] != at || claims["exp"] != at+3600 || claims["jti"] == "" {
		t.Errorf("claims %v", claims)
	}
	s := c.review(r.GetStatus().GetToken())
	u := s.GetUser()
	if !s.GetAuthenticated() || u.GetUsername() != "system:serviceaccount:default:builder" ||
		u.GetUid() != account.GetMetadata().GetUid() ||
		strings.Join(u.GetGroups(), " ") != "system:serviceaccounts system:serviceaccounts:default system:authenticated" ||
		u.GetExtra()["authentication.kubernetes.io/credential-id"].GetItems()[0] != "JTI="+claims["jti"].(string) ||
		s.GetAudiences()[0] != serverAudience {
		t.Errorf("review: %v", s)
	}
	// Longer than a year is not granted.
	long := must(c.admin().ServiceAccounts.CreateToken(ctx(t), tokenRequest(lasting(1<<32))))(t)
	if long.GetSpec().GetExpirationSeconds() != 365*24*3600 {
		t.Errorf("granted %d seconds", long.GetSpec().GetExpirationSeconds())
	}
}

// What pods read once is valid for a year, and says when it should have been replaced; what is not bound to a pod, is
// for others or lasts as long as asked is not.
func TestTokensOfPodsAreExtended(t *testing.T) {
	c := start(t)
	c.account("builder")
	pod := newPod("p")
	pod.Spec.ServiceAccountName = "builder"
	pod = must(c.admin().Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: pod}))(t)
	bound, asked := boundTo("Pod", "p", pod.GetMetadata().GetUid()), lasting(3607)
	for name, x := range map[string]struct {
		change []func(*authenticationv1.TokenRequestSpec)
		life   float64
		warns  bool
	}{
		"of a pod":    {[]func(*authenticationv1.TokenRequestSpec){bound, asked}, 365 * 24 * 3600, true},
		"of nothing":  {[]func(*authenticationv1.TokenRequestSpec){asked}, 3607, false},
		"shorter":     {[]func(*authenticationv1.TokenRequestSpec){bound, lasting(3600)}, 3600, false},
		"for another": {[]func(*authenticationv1.TokenRequestSpec){bound, asked, forAudiences("vault")}, 3607, false},
	} {
		r := must(c.admin().ServiceAccounts.CreateToken(ctx(t), tokenRequest(x.change...)))(t)
		_, claims := said(t, r.GetStatus().GetToken())
		issued := claims["iat"].(float64)
		if life := claims["exp"].(float64) - issued; life != x.life {
			t.Errorf("%s: valid for %v s, want %v", name, life, x.life)
		}
		private := claims["kubernetes.io"].(map[string]any)
		if due, ok := private["warnafter"].(float64); ok != x.warns || ok && due-issued != 3607 {
			t.Errorf("%s: to be replaced after %v s, %v", name, due-issued, ok)
		}
		asked := r.GetSpec().GetExpirationSeconds()
		if to := r.GetStatus().GetExpirationTimestamp().GetSeconds(); to-int64(issued) != asked {
			t.Errorf("%s: the holder is told %d s, want %d", name, to-int64(issued), asked)
		}
	}
}

// The audit log says who uses a token that should have been replaced, and for how long, in the words of Kubernetes.
func TestStaleTokensAreAudited(t *testing.T) {
	policy, err := audit.ParsePolicy("policy", []byte(`apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata, resources: [{group: authentication.k8s.io, resources: [tokenreviews]}]}]
`))
	if err != nil {
		t.Fatal(err)
	}
	out := &closable{}
	trail, err := audit.NewLog(audit.Config{Policy: policy, Writer: out, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	c := start(t, func(cfg *apiserver.Config) { cfg.Audit = trail })
	c.account("builder")
	pod := newPod("p")
	pod.Spec.ServiceAccountName = "builder"
	pod = must(c.admin().Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: pod}))(t)
	token := c.token(boundTo("Pod", "p", pod.GetMetadata().GetUid()), lasting(3607))
	for range 2 {
		if s := c.review(token); !s.GetAuthenticated() {
			t.Errorf("not authenticated: %v", s)
		}
		c.clock.Step(3610 * time.Second)
	}
	if err := trail.Close(ctx(t)); err != nil {
		t.Fatal(err)
	}
	const stale = `"authentication.k8s.io/stale-token":"subject: system:serviceaccount:default:builder, ` +
		`seconds after warning threshold: 3"`
	lines := slices.Collect(strings.Lines(out.String()))
	if len(lines) != 2 || strings.Contains(lines[0], "stale") || !strings.Contains(lines[1], stale) {
		t.Errorf("the log lacks %s:\n%s", stale, out.String())
	}
}

func TestTokensEnd(t *testing.T) {
	c := start(t)
	c.account("builder")
	admin := c.admin()
	pod := newPod("p")
	pod.Spec.ServiceAccountName = "builder"
	pod = must(admin.Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: pod}))(t)
	node := must(admin.Nodes.Create(ctx(t), &corev1rpc.CreateNodeRequest{Object: newNode("n")}))(t)
	secret := must(admin.Secrets.Create(ctx(t), &corev1rpc.CreateSecretRequest{
		Object: &corev1.Secret{Metadata: &metav1.ObjectMeta{Name: "s", Namespace: "default"}},
	}))(t)
	free, brief := c.token(), c.token(lasting(600))
	toPod := c.token(boundTo("Pod", "p", pod.GetMetadata().GetUid()))
	toNode := c.token(boundTo("Node", "n", node.GetMetadata().GetUid()))
	toSecret := c.token(boundTo("Secret", "s", secret.GetMetadata().GetUid()))
	all := map[string]string{"free": free, "brief": brief, "pod": toPod, "node": toNode, "secret": toSecret}
	for name, token := range all {
		if s := c.review(token); !s.GetAuthenticated() {
			t.Errorf("%s: %v", name, s)
		}
	}
	c.refused(free+"x", "not signed by a key of this server")
	c.refused(free[:len(free)-1], "not signed by a key of this server")
	c.refused("rubbish", "invalid bearer token")

	must(admin.Pods.Delete(ctx(t), &metav1.DeleteRequest{Namespace: "default", Name: "p"}))(t)
	c.refused(toPod, "its pod is gone")
	again := newPod("p")
	again.Spec.ServiceAccountName = "builder"
	must(admin.Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: again}))(t)
	c.refused(toPod, "its pod is gone")
	must(admin.Nodes.Delete(ctx(t), &metav1.DeleteRequest{Name: "n"}))(t)
	c.refused(toNode, "its node is gone")
	must(admin.Secrets.Delete(ctx(t), &metav1.DeleteRequest{Namespace: "default", Name: "s"}))(t)
	c.refused(toSecret, "its secret is gone")

	c.clock.Step(10*time.Minute + 30*time.Second) // clocks may differ by a minute
	if !c.review(brief).GetAuthenticated() {
		t.Error("a token ended too early")
	}
	c.clock.Step(time.Minute)
	c.refused(brief, "has expired")
	must(admin.ServiceAccounts.Delete(ctx(t), &metav1.DeleteRequest{Namespace: "default", Name: "builder"}))(t)
	c.refused(free, "its serviceaccount is gone")
	c.account("builder")
	c.refused(free, "its serviceaccount is gone")
}

// A token that its Secret holds ends with the account of that uid, whether the Secret is there or not.
func TestTokensOfSecretsEndWithTheirAccount(t *testing.T) {
	c := start(t)
	token, err := c.bearers.Accounts.(*tokens.Authority).ForSecret(c.account("builder"), "s")
	if err != nil {
		t.Fatal(err)
	}
	c.refused(token, "its secret is gone")
	s := newSecret("s", map[string]string{"token": token})
	s.Type = "kubernetes.io/service-account-token"
	s.Metadata.Annotations = map[string]string{"kubernetes.io/service-account.name": "builder"}
	must(c.admin().Secrets.Create(ctx(t), &corev1rpc.CreateSecretRequest{Object: s}))(t)
	if s := c.review(token); !s.GetAuthenticated() {
		t.Errorf("got %v", s)
	}
	must(c.admin().ServiceAccounts.Delete(ctx(t), &metav1.DeleteRequest{Namespace: "default", Name: "builder"}))(t)
	c.refused(token, "its serviceaccount is gone")
	c.account("builder")
	c.refused(token, "its serviceaccount is gone")
}

// An object that finalizers hold is gone for its tokens a minute after its time.
func TestTokensOfObjectsThatWaitToGo(t *testing.T) {
	c := start(t)
	c.account("builder")
	pod := newPod("p")
	pod.Spec.ServiceAccountName = "builder"
	pod.Metadata.Finalizers = []string{"example.com/hold"}
	pod = must(c.admin().Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: pod}))(t)
	token := c.token(boundTo("Pod", "p", pod.GetMetadata().GetUid()))
	must(c.admin().Pods.Delete(ctx(t), &metav1.DeleteRequest{Namespace: "default", Name: "p"}))(t)
	if !c.review(token).GetAuthenticated() {
		t.Error("the token of a pod that is being stopped is dead")
	}
	c.clock.Step(3 * time.Minute)
	c.refused(token, "its pod is gone")
}

func TestTokenAudiences(t *testing.T) {
	c := start(t)
	c.account("builder")
	token := c.token(forAudiences("vault", "registry"))
	c.refused(token, `is for ["vault" "registry"], not for`)
	c.refused(token, "is for", "other")
	if s := c.review(token, "other", "registry", "registry"); !s.GetAuthenticated() || len(s.GetAudiences()) != 1 ||
		s.GetAudiences()[0] != "registry" {
		t.Errorf("got %v", s)
	}
}

func TestTokenRequestsThatAreRefused(t *testing.T) {
	c := start(t)
	account := c.account("builder")
	c.account("other")
	must(c.admin().Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: newPod("p")}))(t)
	change := func(f func(*corev1rpc.CreateTokenServiceAccountRequest)) *corev1rpc.CreateTokenServiceAccountRequest {
		r := tokenRequest()
		f(r)
		return r
	}
	meta := func(m *metav1.ObjectMeta) *corev1rpc.CreateTokenServiceAccountRequest {
		return change(func(r *corev1rpc.CreateTokenServiceAccountRequest) { r.Object.Metadata = m })
	}
	for name, test := range map[string]struct {
		request *corev1rpc.CreateTokenServiceAccountRequest
		reason  apierrors.Reason
		want    string
	}{
		"too brief": {tokenRequest(lasting(599)), apierrors.Invalid, "may not specify a duration less than 10 minutes"},
		"too long":  {tokenRequest(lasting(1<<32 + 1)), apierrors.Invalid, "larger than 2^32 seconds"},
		"no account": {change(func(r *corev1rpc.CreateTokenServiceAccountRequest) { r.Name = "nobody" }), apierrors.NotFound,
			`serviceaccounts "nobody" not found`},
		"another name": {meta(&metav1.ObjectMeta{Name: "other"}), apierrors.Invalid,
			"must match the service account name if specified"},
		"another namespace": {meta(&metav1.ObjectMeta{Namespace: "other"}), apierrors.Invalid,
			"must match the service account namespace if specified"},
		"another uid": {meta(&metav1.ObjectMeta{Uid: "x"}), apierrors.Conflict, "the UID in the token request (x)"},
		"pod of another account": {tokenRequest(boundTo("Pod", "p", "")), apierrors.BadRequest,
			"pod running with different serviceaccount name"},
		"no pod": {tokenRequest(boundTo("Pod", "q", "")), apierrors.NotFound, `pods "q" not found`},
		"a kind that nothing is bound to": {tokenRequest(boundTo("ConfigMap", "c", "")), apierrors.BadRequest,
			"cannot bind token to object of type v1, Kind=ConfigMap"},
		"dry run of nothing": {change(func(r *corev1rpc.CreateTokenServiceAccountRequest) { r.DryRun = []string{"x"} }),
			apierrors.Invalid, "dryRun"},
	} {
		_, err := c.admin().ServiceAccounts.CreateToken(ctx(t), test.request)
		if !apierrors.Is(err, test.reason) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := tokenRequest(boundTo("Pod", "p", "x"))
	r.Name = "default"
	if _, err := c.admin().ServiceAccounts.CreateToken(ctx(t), r); !apierrors.Is(err, apierrors.Conflict) {
		t.Errorf("a pod of another uid: %v", err)
	}
	if m := must(c.admin().ServiceAccounts.CreateToken(ctx(t), meta(&metav1.ObjectMeta{
		Name: "builder", Namespace: "default", Uid: account.GetMetadata().GetUid(),
	})))(t); m.GetStatus().GetToken() == "" {
		t.Error("what fits is refused")
	}
}

// An agent gets tokens of pods that run on its node, bound to them, for audiences that the pods have tokens for.
func TestAgentsGetTokensOfTheirPods(t *testing.T) {
	c := start(t)
	c.account("builder")
	agent := c.agent("n")
	must(agent.Nodes.Create(ctx(t), &corev1rpc.CreateNodeRequest{Object: newNode("n")}))(t)
	must(c.agent("m").Nodes.Create(ctx(t), &corev1rpc.CreateNodeRequest{Object: newNode("m")}))(t)
	uids := make(map[string]string)
	for name, node := range map[string]string{"mine": "n", "theirs": "m", "nobodys": ""} {
		pod := newPod(name)
		pod.Spec.ServiceAccountName, pod.Spec.NodeName = "builder", node
		pod.Spec.Volumes = []*corev1.Volume{{Name: tokenVolume, VolumeSource: &corev1.VolumeSource{
			Projected: &corev1.ProjectedVolumeSource{Sources: []*corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "api"}},
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "vault", Audience: "vault"}},
			}},
		}}}
		uids[name] = "uid-" + name
		pod.Metadata.Uid = uids[name]
		nodekey.Set(pod.Metadata, "key-"+node)
		// Into the store itself: whether pods may have such volumes is not asked here.
		key := store.Key{Kind: corev1.PodKind, Namespace: "default", Name: name}
		must(c.store.Commit(ctx(t), store.Txn{Ops: []store.Op{{Key: key, Object: pod}}}))(t)
	}
	mine := boundTo("Pod", "mine", uids["mine"])
	for name, test := range map[string]struct {
		request *corev1rpc.CreateTokenServiceAccountRequest
		want    string
	}{
		"the API server's":  {tokenRequest(mine), ""},
		"another audience":  {tokenRequest(mine, forAudiences("vault")), ""},
		"not bound":         {tokenRequest(), "not bound to a pod"},
		"bound to the node": {tokenRequest(boundTo("Node", "n", "")), "not bound to a pod"},
		"no uid":            {tokenRequest(boundTo("Pod", "mine", "")), "without a uid"},
		"another node's":    {tokenRequest(boundTo("Pod", "theirs", uids["theirs"])), "on a different node"},
		"no node's":         {tokenRequest(boundTo("Pod", "nobodys", uids["nobodys"])), "on a different node"},
		"audience of no volume": {tokenRequest(mine, forAudiences("registry")),
			`audience "registry" not found in pod spec volume`},
		"one audience too many": {tokenRequest(mine, forAudiences("vault", "registry")), `audience "registry" not found`},
	} {
		r, err := agent.ServiceAccounts.CreateToken(ctx(t), test.request)
		switch {
		case test.want == "" && (err != nil || r.GetStatus().GetToken() == ""):
			t.Errorf("%s: %v", name, err)
		case test.want != "" && (!apierrors.Is(err, apierrors.Forbidden) || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v", name, err)
		}
	}
	// spec: NODE-7
	other := c.as(agentUser("n", "another machine"))
	if _, err := other.ServiceAccounts.CreateToken(ctx(t), tokenRequest(mine)); !apierrors.Is(err, apierrors.Forbidden) {
		t.Errorf("another machine of the name: %v", err)
	}
	token := must(agent.ServiceAccounts.CreateToken(ctx(t), tokenRequest(mine)))(t).GetStatus().GetToken()
	extra := c.review(token).GetUser().GetExtra()
	for key, want := range map[string]string{"pod-name": "mine", "pod-uid": uids["mine"], "node-name": "n"} {
		if got := extra["authentication.kubernetes.io/"+key].GetItems(); len(got) != 1 || got[0] != want {
			t.Errorf("%s is %q, expected %q", key, got, want)
		}
	}
	// Others than agents and administrators get none, and ask about none.
	for _, u := range []*authn.User{
		{Name: "jane"}, {Name: "system:serviceaccount:default:builder", Groups: []string{"system:serviceaccounts"}},
		{Name: authn.SchedulerName}, {Name: authn.ControllerPrefix + "x"},
	} {
		if _, err := c.as(u).ServiceAccounts.CreateToken(ctx(t), tokenRequest()); !apierrors.Is(err, apierrors.Forbidden) {
			t.Errorf("%s: %v", u.Name, err)
		}
		_, err := c.as(u).TokenReviews.Create(ctx(t), &authenticationv1rpc.CreateTokenReviewRequest{
			Object: &authenticationv1.TokenReview{Spec: &authenticationv1.TokenReviewSpec{Token: token}},
		})
		if !apierrors.Is(err, apierrors.Forbidden) {
			t.Errorf("%s reviews tokens: %v", u.Name, err)
		}
	}
}

func TestWhoAmI(t *testing.T) {
	c := start(t)
	ask := &authenticationv1rpc.CreateSelfSubjectReviewRequest{Object: &authenticationv1.SelfSubjectReview{}}
	for _, u := range []*authn.User{
		{Name: "jane", Groups: []string{"devs"}, UID: "1", Extra: map[string][]string{"k": {"a", "b"}}},
		adminUser(), agentUser("n", "key"), {Name: authn.SchedulerName}, {Name: authn.ControllerPrefix + "podgc"},
	} {
		got := must(c.as(u).SelfSubjectReviews.Create(ctx(t), ask))(t).GetStatus().GetUserInfo()
		if got.GetUsername() != u.Name || got.GetUid() != u.UID || len(got.GetGroups()) != len(u.Groups) ||
			len(got.GetExtra()) != len(u.Extra) {
			t.Errorf("%s is told %v", u.Name, got)
		}
	}
	if _, err := c.as(nil).SelfSubjectReviews.Create(ctx(t), ask); !apierrors.Is(err, apierrors.Unauthorized) {
		t.Errorf("nobody: %v", err)
	}
	_, err := c.admin().TokenReviews.Create(ctx(t), &authenticationv1rpc.CreateTokenReviewRequest{})
	if !apierrors.Is(err, apierrors.BadRequest) {
		t.Errorf("no token: %v", err)
	}
}

// What is secret is in no log, whatever becomes of requests.
func TestTokensAreNotLogged(t *testing.T) {
	c := start(t)
	c.account("builder")
	token := c.token()
	c.review(token)
	c.refused(token+"x", "not signed")
	must(c.admin().ServiceAccounts.Delete(ctx(t), &metav1.DeleteRequest{Namespace: "default", Name: "builder"}))(t)
	c.refused(token, "is gone")
	signature := token[strings.LastIndexByte(token, '.')+1:]
	if bytes.Contains([]byte(c.log.String()), []byte(signature)) {
		t.Errorf("a token is in the log:\n%s", c.log.String())
	}
}

package criconfig_test

import (
	"errors"
	"io/fs"
	"net/netip"
	"strings"
	"testing"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/nodeagent/criconfig"
	"monoplane.dev/rules/resources"
)

func ref(name string) *corev1.LocalObjectReference { return &corev1.LocalObjectReference{Name: name} }

func fromConfigMap(name, of, key string, optional bool) *corev1.EnvVar {
	return &corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: ref(of), Key: key, Optional: &optional}}}
}

func fromSecret(name, of, key string, optional bool) *corev1.EnvVar {
	return &corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: ref(of), Key: key, Optional: &optional}}}
}

func fromFile(name, path, key string, optional bool) *corev1.EnvVar {
	return &corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{
		VolumeName: "v", Path: path, Key: key, Optional: &optional}}}
}

func amount(name, container, what, divisor string) *corev1.EnvVar {
	return &corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{
		ContainerName: container, Resource: what, Divisor: &metav1.Quantity{String_: divisor}}}}
}

func allOfConfigMap(prefix, name string, optional bool) *corev1.EnvFromSource {
	return &corev1.EnvFromSource{Prefix: prefix, ConfigMapRef: &corev1.ConfigMapEnvSource{
		LocalObjectReference: ref(name), Optional: &optional}}
}

func allOfSecret(prefix, name string, optional bool) *corev1.EnvFromSource {
	return &corev1.EnvFromSource{Prefix: prefix, SecretRef: &corev1.SecretEnvSource{
		LocalObjectReference: ref(name), Optional: &optional}}
}

// lookups counts what is looked up.
type lookups struct{ configMaps, secrets, files int }

var errDown = apierrors.New(apierrors.ServiceUnavailable, "the API is down")

func (l *lookups) content() criconfig.Content {
	return criconfig.Content{
		ConfigMap: func(name string) (*corev1.ConfigMap, error) {
			l.configMaps++
			switch name {
			case "c":
				return &corev1.ConfigMap{Data: map[string]string{"b": "$(X)", "a": "1", "no-name.": "2"},
					BinaryData: map[string][]byte{"bin": {1}}}, nil
			case "down":
				return nil, errDown
			}
			return nil, apierrors.NewNotFound(corev1.ConfigMapKind, name)
		},
		Secret: func(name string) (*corev1.Secret, error) {
			l.secrets++
			switch name {
			case "s":
				return &corev1.Secret{Data: map[string][]byte{"a": []byte("secret"), "raw": {0xff, 0xfe}}}, nil
			case "down":
				return nil, errDown
			}
			return nil, apierrors.NewNotFound(corev1.SecretKind, name)
		},
		File: func(volume, path string) ([]byte, error) {
			l.files++
			switch volume + "/" + path {
			case "v/env":
				return []byte("# made by an init container\nA='1'\nEMPTY=''\nB='two\nlines'\n"), nil
			case "v/bad":
				return []byte("A=hunter2\n"), nil
			}
			return nil, fs.ErrNotExist
		},
		Allocatable: func() resources.List {
			return resources.ListOf(map[string]*metav1.Quantity{"cpu": {String_: "4"}, "memory": {String_: "8Gi"},
				"ephemeral-storage": {String_: "100Gi"}, "hugepages-2Mi": {String_: "1Gi"}})
		},
	}
}

// environment returns the variables of the only container of p, without HOSTNAME, as text.
func environment(p *corev1.Pod, f criconfig.Facts) (string, error) {
	c, err := criconfig.Container(p, p.Spec.Containers[0], criconfig.Instance{}, "", "", f)
	if err != nil {
		return "", err
	}
	var out []string
	for _, v := range c.GetEnvs() {
		if v.GetKey() != "HOSTNAME" {
			out = append(out, v.GetKey()+"="+string(v.GetValue()))
		}
	}
	return strings.Join(out, " "), nil
}

// Variables come from ConfigMaps, Secrets and files, one by one and all at once; each object is looked up once.
//
// spec: CTR-7
func TestVariablesFromObjects(t *testing.T) {
	var l lookups
	f := facts
	f.Content = l.content()
	p := pod(
		fromConfigMap("C", "c", "b", false), fromSecret("S", "s", "raw", false), fromFile("F", "env", "B", false),
		fromConfigMap("NO1", "c", "none", true), fromConfigMap("NO2", "none", "a", true),
		fromConfigMap("NO3", "c", "bin", true), fromSecret("NO4", "s", "none", true), fromSecret("NO5", "none", "a", true),
		fromFile("NO6", "env", "none", true), fromFile("NO7", "none", "A", true), fromFile("NO8", "env", "EMPTY", true),
		&corev1.EnvVar{Name: "X", Value: "<$(C)$(P_a)$(NO1)$(HOSTNAME)>"},
		&corev1.EnvVar{Name: "P_a", Value: "mine"},
	)
	p.Spec.Containers[0].EnvFrom = []*corev1.EnvFromSource{
		allOfConfigMap("", "c", false), allOfSecret("P_", "s", false), allOfConfigMap("", "none", true),
		allOfSecret("", "none", true), allOfSecret("", "s", false), {},
	}
	got, err := environment(p, f)
	want := "a=secret b=$(X) no-name.=2 P_a=mine P_raw=\xff\xfe raw=\xff\xfe C=$(X) S=\xff\xfe F=two\nlines " +
		"X=<$(X)secret$(NO1)$(HOSTNAME)>"
	if err != nil || got != want {
		t.Errorf("environment\n %q, %v\nwant\n %q", got, err, want)
	}
	if l.configMaps != 3 || l.secrets != 3 { // what is missing is looked for each time
		t.Errorf("looked up %+v", l)
	}
}

// What is missing keeps the container from starting, in words that users know from Kubernetes. Nothing of what a file
// or a Secret holds is among them.
//
// spec: CTR-7
func TestMissingVariables(t *testing.T) {
	var l lookups
	f := facts
	f.Content = l.content()
	for _, x := range []struct {
		v    *corev1.EnvVar
		from *corev1.EnvFromSource
		want string
	}{
		{fromConfigMap("X", "none", "k", false), nil, `configmap "none" not found`},
		{fromSecret("X", "none", "k", false), nil, `secret "none" not found`},
		{nil, allOfConfigMap("", "none", false), `configmap "none" not found`},
		{nil, allOfSecret("", "none", false), `secret "none" not found`},
		{fromConfigMap("X", "c", "none", false), nil, `couldn't find key none in ConfigMap ns/c`},
		{fromConfigMap("X", "c", "bin", false), nil, `couldn't find key bin in ConfigMap ns/c`},
		{fromSecret("X", "s", "none", false), nil, `couldn't find key none in Secret ns/s`},
		{fromConfigMap("X", "down", "k", true), nil, "the API is down"},
		{fromSecret("X", "down", "k", true), nil, "the API is down"},
		{nil, allOfConfigMap("", "down", true), "the API is down"},
		{nil, allOfSecret("", "down", true), "the API is down"},
		{fromFile("X", "none", "A", false), nil, "couldn't parse env file: file does not exist"},
		{fromFile("X", "bad", "A", true), nil, "couldn't parse env file: line 1: the value is not in single quotes"},
		{fromFile("X", "env", "none", false), nil, `environment variable key "none" not found in file "env"`},
		{fromFile("X", "env", "EMPTY", false), nil, `environment variable key "EMPTY" not found in file "env"`},
		{field("X", "status.phase"), nil, "unsupported fieldPath: status.phase"},
		{amount("X", "none", "limits.cpu", ""), nil, "container none not found"},
	} {
		p := pod()
		if x.v != nil {
			p.Spec.Containers[0].Env = []*corev1.EnvVar{x.v}
		} else {
			p.Spec.Containers[0].EnvFrom = []*corev1.EnvFromSource{x.from}
		}
		if got, err := environment(p, f); err == nil || err.Error() != x.want {
			t.Errorf("%v %v: %q, %v; want %q", x.v, x.from, got, err, x.want)
		}
	}
	nothing := criconfig.Facts{}
	for _, v := range []*corev1.EnvVar{fromConfigMap("X", "c", "k", false), fromSecret("X", "s", "k", false),
		fromFile("X", "env", "A", false)} {
		if got, err := environment(pod(v), nothing); err == nil {
			t.Errorf("%v: %q without anything to look in", v, got)
		}
	}
}

// Amounts are rounded up to the divisor. A missing limit is what the node, or the pod as a whole, can have.
//
// spec: DOWN-1
func TestAmounts(t *testing.T) {
	var l lookups
	f := facts
	f.Content = l.content()
	quantities := func(kv ...string) map[string]*metav1.Quantity {
		m := map[string]*metav1.Quantity{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = &metav1.Quantity{String_: kv[i+1]}
		}
		return m
	}
	p := pod(
		amount("CPU", "", "limits.cpu", ""), amount("MILLI", "", "limits.cpu", "1m"),
		amount("MEM", "", "limits.memory", "1Mi"),
		amount("REQ", "", "requests.cpu", "0"), amount("NOREQ", "", "requests.memory", "1"),
		amount("DISK", "", "limits.ephemeral-storage", "1G"), amount("PAGES", "", "limits.hugepages-2Mi", "1Mi"),
		amount("OTHER", "other", "limits.memory", "1Gi"), amount("OTHERCPU", "other", "limits.cpu", "1"),
		amount("INIT", "init", "limits.cpu", "1"), amount("INITREQ", "init", "requests.memory", "1Ki"),
	)
	p.Spec.Containers[0].Resources = &corev1.ResourceRequirements{
		Limits: quantities("cpu", "1500m", "hugepages-2Mi", "4Mi"), Requests: quantities("cpu", "10m"),
	}
	p.Spec.Containers = append(p.Spec.Containers, &corev1.Container{Name: "other",
		Resources: &corev1.ResourceRequirements{Limits: quantities("memory", "0")}})
	p.Spec.InitContainers = []*corev1.Container{{Name: "init", Resources: &corev1.ResourceRequirements{
		Requests: quantities("memory", "1025")}}}
	got, err := environment(p, f)
	want := "CPU=2 MILLI=1500 MEM=8192 REQ=1 NOREQ=0 DISK=108 PAGES=4 OTHER=8 OTHERCPU=4 INIT=0 INITREQ=2"
	if err != nil || got != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
	p.Spec.Resources = &corev1.ResourceRequirements{Limits: quantities("cpu", "2", "memory", "1Gi")}
	got, err = environment(p, f)
	want = "CPU=2 MILLI=1500 MEM=1024 REQ=1 NOREQ=0 DISK=108 PAGES=4 OTHER=1 OTHERCPU=2 INIT=0 INITREQ=2"
	if err != nil || got != want {
		t.Errorf("in a pod with limits: %s, %v; want %s", got, err, want)
	}
	if got, err := environment(pod(amount("X", "", "limits.cpu", "")), criconfig.Facts{}); err != nil || got != "X=0" {
		t.Errorf("of an unknown node: %s, %v", got, err)
	}
}

// Variables of the pod's own metadata, whole.
//
// spec: DOWN-1
func TestFieldsOfTheSpec(t *testing.T) {
	p := pod(field("OLD", "spec.host"), field("BAD", "metadata.name['x']"))
	if got, err := environment(p, facts); err == nil || !strings.Contains(err.Error(), "does not support subscript") {
		t.Errorf("%s, %v", got, err)
	}
	p.Spec.Containers[0].Env = p.Spec.Containers[0].Env[:1]
	if got, err := environment(p, facts); err != nil || got != "OLD=n" {
		t.Errorf("%s, %v", got, err)
	}
}

// HOSTNAME is there without being asked for. A variable of the pod's own takes its place, and only then $(HOSTNAME)
// stands for something.
func TestHostnameVariable(t *testing.T) {
	p := pod(&corev1.EnvVar{Name: "BEFORE", Value: "$(HOSTNAME)"}, &corev1.EnvVar{Name: "HOSTNAME", Value: "mine"},
		&corev1.EnvVar{Name: "AFTER", Value: "$(HOSTNAME)"})
	c := container(t, p)
	var got []string
	for _, v := range c.GetEnvs() {
		got = append(got, v.GetKey()+"="+string(v.GetValue()))
	}
	if want := "HOSTNAME=mine BEFORE=$(HOSTNAME) AFTER=mine"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// Pods that can reach the API server are told where it is.
func TestWhereTheAPIIs(t *testing.T) {
	const own, node = "2.2.2.2", "1.1.1.1"
	for _, x := range []struct{ listens, podIP, host string }{
		{"127.0.0.1:6443", node, "127.0.0.1"},
		{"127.0.0.1:6443", own, ""},
		{"[::1]:6443", node, "::1"},
		{"0.0.0.0:6443", node, "127.0.0.1"},
		{"[::]:6443", own, node},
		{"10.0.0.1:6443", own, "10.0.0.1"},
		{"[::ffff:10.0.0.1]:6443", node, "10.0.0.1"},
		{"", node, ""},
	} {
		f := facts
		f.PodIPs = []string{x.podIP}
		f.Content.API, _ = netip.ParseAddrPort(x.listens)
		p := pod(&corev1.EnvVar{Name: "URL", Value: "https://$(KUBERNETES_SERVICE_HOST)"})
		got, err := environment(p, f)
		want := "URL=https://$(KUBERNETES_SERVICE_HOST)"
		if x.host != "" {
			at := netip.AddrPortFrom(netip.MustParseAddr(x.host), 6443).String()
			want = "KUBERNETES_SERVICE_HOST=" + x.host + " KUBERNETES_SERVICE_PORT=6443 KUBERNETES_SERVICE_PORT_HTTPS=6443 " +
				"KUBERNETES_PORT=tcp://" + at + " KUBERNETES_PORT_6443_TCP=tcp://" + at +
				" KUBERNETES_PORT_6443_TCP_PROTO=tcp KUBERNETES_PORT_6443_TCP_PORT=6443 KUBERNETES_PORT_6443_TCP_ADDR=" + x.host +
				" URL=https://" + x.host
		}
		if err != nil || got != want {
			t.Errorf("a server at %q, a pod at %s:\n%s, %v; want\n%s", x.listens, x.podIP, got, err, want)
		}
	}
	f := facts
	f.Content.API = netip.MustParseAddrPort("127.0.0.1:1")
	p := pod()
	p.Spec.HostNetwork = true
	if got, _ := environment(p, f); !strings.Contains(got, "KUBERNETES_SERVICE_HOST=127.0.0.1 ") {
		t.Errorf("a pod on the node's network has %s", got)
	}
	p.Spec.Containers[0].Env = []*corev1.EnvVar{{Name: "KUBERNETES_SERVICE_HOST", Value: "mine"}}
	if got, _ := environment(p, f); !strings.Contains(got, "KUBERNETES_SERVICE_HOST=mine ") {
		t.Errorf("a pod with a variable of its own has %s", got)
	}
}

var errMade = errors.New("made up")

// An error of a lookup is passed on.
func TestLookupsFail(t *testing.T) {
	f := facts
	f.Content.Secret = func(string) (*corev1.Secret, error) { return nil, errMade }
	if _, err := environment(pod(fromSecret("X", "s", "k", true)), f); !errors.Is(err, errMade) {
		t.Errorf("got %v", err)
	}
}

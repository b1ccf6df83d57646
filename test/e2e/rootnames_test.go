//go:build rootonly

package e2e_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// TestRootNames resolves names in pods of images: of Services, of what is behind headless ones, of the pods of a
// StatefulSet and of other machines, with whatever a container's /etc/resolv.conf says by its pod's dnsPolicy.
//
// spec: NET-1, WORK-4
func TestRootNames(t *testing.T) {
	t.Parallel()
	rootAndUser(t, func(t *testing.T, m *machine) {
		m.outside(t).serveNames(t, map[string]string{"outside.example.": "192.0.2.2", "near.corp.example.": "192.0.2.2"})
		m.resolv = filepath.Join(t.TempDir(), "resolv.conf")
		if err := os.WriteFile(m.resolv, []byte("nameserver 192.0.2.2\nsearch corp.example\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		u := m.imageCluster(t)
		u.begin(t)
		k := u.kubectl(t)
		u.apply(t, namesManifest)
		k.ok(t, "rollout status statefulset/db --timeout=2m")
		k.ok(t, "wait --for=condition=Ready pod/web pod/client pod/default pod/none --timeout=2m")

		// What containers are told, and how far they get with that.
		in := func(pod, script string) string {
			out, _ := k.run(t, "", "exec", pod, "--", "sh", "-c", script+" 2>&1")
			return out
		}
		for pod, want := range map[string]string{
			"client": "search default.svc.cluster.local svc.cluster.local cluster.local corp.example\n" +
				"nameserver 10.96.0.10\noptions ndots:5\n",
			"default": "search corp.example\nnameserver 192.0.2.2\n",
			"none":    "search other.example corp.example\nnameserver 192.0.2.2\noptions ndots:2 edns0\n",
		} {
			if got := in(pod, "cat /etc/resolv.conf"); got != want {
				t.Errorf("/etc/resolv.conf of pod %s: %q; want %q", pod, got, want)
			}
		}
		for pod, want := range map[string][]string{
			"client": {"web 80: web", "web.default 80: web", "web.default.svc.cluster.local 80: web", "db-0.db 8080: db-0",
				"db-1.db.default.svc.cluster.local 8080: db-1", "alias 9000: outside", "outside.example 9000: outside",
				"near 9000: outside", "nobody 80: nc: bad address 'nobody'"},
			"default": {"near 9000: outside", "web 80: nc: bad address 'web'"},
			"none":    {"near 9000: outside", "web.default 80: nc: bad address 'web.default'"},
			"db-0":    {"db-1.db 8080: db-1", "$(hostname -f) 8080: db-0"},
		} {
			var script strings.Builder
			for _, line := range want {
				to, _, _ := strings.Cut(line, ":")
				fmt.Fprintf(&script, "echo '%s: '$(nc -w 5 %[1]s </dev/null 2>&1)\n", to)
			}
			eventually(t, "names in pod "+pod, func() (bool, string) {
				out := in(pod, script.String())
				return strings.Contains(out, strings.Join(want, "\n")), out
			})
		}

		// The records, over UDP and TCP.
		address := func(of string) string { return k.ok(t, "get "+of+" -o jsonpath={.spec.clusterIP}{.status.podIP}") }
		web, first, second := address("service web"), address("pod db-0"), address("pod db-1")
		reverse := func(of string) string {
			name, err := dns.ReverseAddr(of)
			if err != nil {
				t.Fatal(err)
			}
			return name
		}
		const domain = ".default.svc.cluster.local."
		client := u.podNetwork(t, "client")
		for _, question := range []struct {
			kind uint16
			name string
			want []string
		}{
			{dns.TypeA, "web" + domain, []string{web}},
			{dns.TypeAAAA, "web" + domain, nil},
			{dns.TypeA, "db" + domain, []string{first, second}},
			{dns.TypeA, "db-1.db" + domain, []string{second}},
			{dns.TypeA, strings.ReplaceAll(first, ".", "-") + ".default.pod.cluster.local.", []string{first}},
			{dns.TypeSRV, "_http._tcp.web" + domain, []string{"0 100 80 web" + domain}},
			{dns.TypeSRV, "_sql._tcp.db" + domain, []string{"0 50 8080 db-0.db" + domain, "0 50 8080 db-1.db" + domain}},
			{dns.TypePTR, reverse(web), []string{"web" + domain}},
			{dns.TypePTR, reverse(second), []string{"db-1.db" + domain}},
			{dns.TypeCNAME, "alias" + domain, []string{"outside.example."}},
			{dns.TypeA, "outside.example.", []string{"192.0.2.2"}},
		} {
			for _, over := range []string{"udp", "tcp"} {
				eventually(t, fmt.Sprintf("%s %s over %s is %v", question.name, dns.TypeToString[question.kind], over,
					question.want), func() (bool, string) {
					got, err := inNetwork(client, func() ([]string, error) { return resolve(over, question.name, question.kind) })
					return err == nil && fmt.Sprint(got) == fmt.Sprint(slices.Sorted(slices.Values(question.want))),
						fmt.Sprint(got, err)
				})
			}
		}
		u.down(t)
	})
}

// resolve asks the cluster's DNS, and returns what the records of a name say, in order.
func resolve(network, name string, kind uint16) ([]string, error) {
	client := dns.Client{Net: network, Timeout: 5 * time.Second}
	answer, _, err := client.Exchange(new(dns.Msg).SetQuestion(name, kind), "10.96.0.10:53")
	if err != nil {
		return nil, err
	}
	if answer.Rcode != dns.RcodeSuccess {
		return nil, fmt.Errorf("%s", dns.RcodeToString[answer.Rcode])
	}
	var out []string
	for _, r := range answer.Answer {
		if r.Header().Rrtype == kind {
			out = append(out, strings.TrimPrefix(r.String(), r.Header().String()))
		}
	}
	slices.Sort(out)
	return out, nil
}

// serveNames makes a machine a DNS server at its address outside, which knows these names' addresses.
func (m *machine) serveNames(t *testing.T, addresses map[string]string) {
	t.Helper()
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		a := new(dns.Msg).SetReply(q)
		if ip, ok := addresses[q.Question[0].Name]; !ok {
			a.Rcode = dns.RcodeNameError
		} else if q.Question[0].Qtype == dns.TypeA {
			h := dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 5}
			a.Answer = []dns.RR{&dns.A{Hdr: h, A: net.ParseIP(ip)}}
		}
		_ = w.WriteMsg(a) // Who gets no answer asks again.
	})
	const at = "192.0.2.2:53"
	packets, err := insideOf(m, func() (net.PacketConn, error) { return net.ListenPacket("udp", at) })
	if err != nil {
		t.Fatal(err)
	}
	listener, err := insideOf(m, func() (net.Listener, error) { return net.Listen("tcp", at) })
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*dns.Server{{PacketConn: packets, Handler: handler}, {Listener: listener, Handler: handler}} {
		ended, started := make(chan error, 1), make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go func() { ended <- s.ActivateAndServe() }()
		select {
		case <-started:
		case err := <-ended:
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Shutdown(); err != nil {
				t.Error(err)
			}
			<-ended
		})
	}
}

const namesManifest = `
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: web
    image: localhost/box:1
    command: [sh, -c, 'nc -ll -p 8080 -e hostname']
    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: alias}
spec: {type: ExternalName, externalName: outside.example}
---
apiVersion: v1
kind: Service
metadata: {name: db}
spec:
  clusterIP: None
  selector: {app: db}
  ports: [{name: sql, port: 8080}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 2
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: db
        image: localhost/box:1
        command: [sh, -c, 'nc -ll -p 8080 -e hostname']
        readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: client, image: 'localhost/box:1'}]
---
apiVersion: v1
kind: Pod
metadata: {name: default}
spec:
  dnsPolicy: Default
  terminationGracePeriodSeconds: 1
  containers: [{name: client, image: 'localhost/box:1'}]
---
apiVersion: v1
kind: Pod
metadata: {name: none}
spec:
  dnsPolicy: None
  dnsConfig:
    nameservers: [192.0.2.2]
    searches: [other.example, corp.example]
    options: [{name: ndots, value: "2"}, {name: edns0}]
  terminationGracePeriodSeconds: 1
  containers: [{name: client, image: 'localhost/box:1'}]
`

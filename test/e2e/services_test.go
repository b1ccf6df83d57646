package e2e_test

import (
	"regexp"
	"strings"
	"testing"
)

const taken = `
apiVersion: v1
kind: Service
metadata: {name: thief}
spec: {clusterIP: ADDRESS, ports: [{port: 80}]}
`

// Services of every type, as a user makes and sees them with the unmodified kubectl, and as pods are told of them.
// spec: LIFE-8, CLI-3
func TestServices(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	k := c.kubectl(t, c.namespace(t))
	k.tour(t, []step{
		{line: "create deployment web --image=host --port=8080 -- sleep 3600", want: []string{`created$`}},
		{line: "expose deployment web --port=80", want: []string{`^service/web exposed$`}},
		{line: "create service clusterip my-db --tcp=5432:5432 --tcp=9", want: []string{`^service/my-db created$`}},
		{line: "create service nodeport open --tcp=80 --node-port=30123", want: []string{`^service/open created$`}},
		{line: "create service externalname far --external-name=example.com", want: []string{`^service/far created$`}},
		{line: "create service clusterip bare --clusterip=None", want: []string{`^service/bare created$`}},
		{line: "get svc", want: []string{`^NAME +TYPE +CLUSTER-IP +EXTERNAL-IP +PORT\(S\) +AGE$`,
			`^web +ClusterIP +10\.96\.\d+\.\d+ +<none> +80/TCP +\S+$`,
			`^my-db +ClusterIP +10\.96\.\d+\.\d+ +<none> +5432/TCP,9/TCP +\S+$`,
			`^open +NodePort +10\.96\.\d+\.\d+ +<none> +80:30123/TCP +\S+$`,
			`^far +ExternalName +<none> +example\.com +<none> +\S+$`,
			`^bare +ClusterIP +None +<none> +<none> +\S+$`}},
		{line: "get svc web -o wide", want: []string{`AGE +SELECTOR$`, ` app=web$`}},
		{line: "wait --for=create endpoints/web --timeout=2m"},
		{line: "describe svc web", want: []string{`^Selector: +app=web$`, `^Type: +ClusterIP$`,
			`^IP: +10\.96\.\d+\.\d+$`, `^Port: +<unset>  80/TCP$`, `^TargetPort: +80/TCP$`, `^Endpoints: `}},
		{line: "create service nodeport late --tcp=80 --node-port=30123", code: 1,
			want: []string{`provided port is already allocated`}},
	})
	ip := func(name string) string {
		return strings.TrimSpace(k.ok(t, "get svc "+name+" -o jsonpath={.spec.clusterIP}"))
	}
	db := ip("my-db")
	k.tour(t, []step{
		{line: "apply -f -", stdin: strings.Replace(taken, "ADDRESS", db, 1), code: 1,
			want: []string{regexp.QuoteMeta("failed to allocate IP " + db + ": provided IP is already allocated")}},
		{line: "run told --image=host --restart=Never --command -- env"},
		{line: `run untold --image=host --restart=Never --overrides={"spec":{"enableServiceLinks":false}} --command -- env`},
		{line: "wait --for=jsonpath={.status.phase}=Succeeded pod/told pod/untold --timeout=2m"},
		{line: "logs told", want: []string{`^MY_DB_SERVICE_HOST=` + regexp.QuoteMeta(db) + `$`, `^MY_DB_SERVICE_PORT=5432$`,
			`^MY_DB_SERVICE_PORT_9=9$`, `^MY_DB_PORT_9_TCP_ADDR=` + regexp.QuoteMeta(db) + `$`,
			`^WEB_PORT=tcp://` + regexp.QuoteMeta(ip("web")) + `:80$`, `^OPEN_SERVICE_PORT_80=80$`,
			`^KUBERNETES_SERVICE_HOST=`}},
		{line: "logs untold", want: []string{`^KUBERNETES_SERVICE_HOST=`}},
	})
	if out := k.ok(t, "logs told"); regexp.MustCompile(`(?m)^(FAR|BARE)_`).MatchString(out) {
		t.Errorf("Services without an address are announced:\n%s", out)
	}
	if out := k.ok(t, "logs untold"); strings.Contains(out, "MY_DB") {
		t.Errorf("Services are announced to a pod that wants none:\n%s", out)
	}
	k.ok(t, "delete svc,deploy,pod --all")
	k.ok(t, "wait --for=delete pod --all --timeout=2m")
	k.until(t, "get svc,ep", `No resources found`)
}

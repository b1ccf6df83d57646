package e2e_test

import "testing"

const servicesOfPods = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  clusterIP: None
  ipFamilies: [IPv4]
  selector: {app: web}
  ports: [{name: http, port: 80, protocol: TCP, targetPort: 8080}]
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: web}]
---
apiVersion: v1
kind: Service
metadata: {name: db}
spec:
  clusterIP: None
  ipFamilies: [IPv4]
  ports: [{port: 5432, protocol: TCP, targetPort: 5432}]
---
apiVersion: v1
kind: Endpoints
metadata: {name: db}
subsets: [{addresses: [{ip: 192.0.2.7}], ports: [{port: 5432}]}]
`

// Endpoints of a service with a selector and of one without, as a user sees them with the unmodified kubectl.
// spec: WORK-4, CLI-3
func TestEndpoints(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--runtime", "fake")
	k := c.kubectl(t, c.namespace(t))
	k.tour(t, []step{
		{line: "apply -f -", stdin: servicesOfPods, want: []string{`^service/web created$`, `^endpoints/db created$`}},
	})
	// kubectl wait fails for what is not there yet.
	k.until(t, "get endpoints web -o jsonpath={.subsets[0].addresses[0].targetRef.name}", `web$`)
	for _, service := range []string{"web", "db"} {
		k.until(t, "get endpointslices -l kubernetes.io/service-name="+service+
			" -o jsonpath={.items[*].endpoints[*].conditions.ready}", `^true$`)
	}
	k.tour(t, []step{
		{line: "get endpointslices", want: []string{`^NAME +ADDRESSTYPE +PORTS +ENDPOINTS +AGE$`,
			`^web-[a-z0-9]{5} +IPv4 +8080 +[0-9.]+ +[\dms]+$`, `^db-[a-z0-9]{5} +IPv4 +5432 +192\.0\.2\.7 +[\dms]+$`}},
		{line: "get ep", want: []string{
			`^Warning: v1 Endpoints is deprecated in v1\.33\+; use discovery\.k8s\.io/v1 EndpointSlice$`,
			`^NAME +ENDPOINTS +AGE$`, `^web +[0-9.]+:8080 +[\dms]+$`,
			`^db +192\.0\.2\.7:5432 +[\dms]+$`}},
		{line: "describe service web", want: []string{`^Endpoints: +[0-9.]+:8080$`}},
		{line: "delete service web", want: []string{`"web" deleted`}},
		{line: "wait --for=delete endpoints/web --timeout=2m"},
		{line: "wait --for=delete endpointslices -l kubernetes.io/service-name=web --timeout=2m"},
		{line: "get endpointslices", want: []string{`^db-[a-z0-9]{5} `}},
	})
}

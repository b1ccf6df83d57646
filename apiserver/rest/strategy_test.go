package rest_test

import (
	"strings"
	"testing"
)

// A PUT of a name that is not there makes the object where the kind allows it, with 201, and elsewhere finds nothing.
// What names another object, by uid or revision, makes none.
func TestCreateOnUpdate(t *testing.T) {
	f := newFront(t)
	const leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases/"
	lease := func(meta string) string {
		return `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"a"` + meta + `}}`
	}
	f.want(f.do("PUT", leases+"a", lease(`,"resourceVersion":"7"`)), 409, "the object has been modified")
	f.want(f.do("PUT", leases+"a", lease(`,"uid":"u"`)), 409, "UID in precondition: u, UID in object meta: ")
	f.want(f.do("PUT", leases+"a?dryRun=All", lease("")), 201)
	f.want(f.do("PUT", leases+"a", lease("")), 201, `"uid":"`)
	f.want(f.do("PUT", leases+"a", lease("")), 422, "must be specified for an update")
	f.want(f.do("PUT", leases+"b", lease("")), 400, "does not match the name on the URL")
	f.want(f.do("PUT", "/api/v1/namespaces/default/services/a",
		`{"metadata":{"name":"a"},"spec":{"ports":[{"port":80}]}}`), 201, `"clusterIP":"`)
	f.want(f.do("PUT", "/api/v1/namespaces/default/configmaps/a", `{"metadata":{"name":"a"}}`), 404)
	f.want(f.do("PUT", "/api/v1/namespaces/nowhere/limitranges/a", `{"metadata":{"name":"a"},"spec":{"limits":[]}}`),
		404, `namespaces \"nowhere\" not found`)
	f.want(f.do("PUT", "/api/v1/namespaces/default/services/b/status", `{"metadata":{"name":"b"}}`), 404)
}

// A deletion is answered with a Status when the object is gone and its kind is not shown, and else with the object.
func TestAnswerToDeletion(t *testing.T) {
	f := newFront(t)
	for path, shown := range map[string]bool{
		"/api/v1/namespaces/default/configmaps": false, "/api/v1/namespaces/default/serviceaccounts": true,
		"/api/v1/namespaces/default/podtemplates": true, "/api/v1/namespaces/default/secrets": false,
	} {
		for _, finalizers := range []string{"", `,"finalizers":["example.com/a"]`} {
			body := `{"metadata":{"name":"a"` + finalizers + `}`
			if strings.HasSuffix(path, "podtemplates") {
				body += `,"template":{"spec":{"containers":[{"name":"c","image":"host"}]}}`
			}
			body += "}"
			f.want(f.do("POST", path, body), 201)
			want := []string{`"kind":"Status"`, `"status":"Success"`, `"uid":"`}
			if shown || finalizers != "" {
				want = []string{`"metadata":{"name":"a"`}
			}
			f.want(f.do("DELETE", path+"/a?dryRun=All", ""), 200, want...)
			f.want(f.do("DELETE", path+"/a", ""), 200, want...)
			if finalizers != "" {
				f.want(f.do("DELETE", path+"/a", ""), 200, `"deletionTimestamp":"`)
				f.want(f.do("PATCH", path+"/a", `{"metadata":{"finalizers":null}}`, "Content-Type",
					"application/merge-patch+json"), 200)
			}
			f.want(f.do("GET", path+"/a", ""), 404)
		}
	}
}

package apiserver_test

import (
	"testing"

	"monoplane.dev/apierrors"

	appsv1 "monoplane.dev/api/apps/v1"
	appsv1rpc "monoplane.dev/api/apps/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

func TestControllerRevisionsKeepTheirState(t *testing.T) {
	revisions := appsv1rpc.NewControllerRevisionsClient(start(t).admin().conn)
	create := func(name, data string, n int64) (*appsv1.ControllerRevision, error) {
		return revisions.Create(ctx(t), &appsv1rpc.CreateControllerRevisionRequest{Object: &appsv1.ControllerRevision{
			Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name}, Data: &metav1.RawExtension{Raw: []byte(data)},
			Revision: n,
		}})
	}
	for name, bad := range map[string]struct {
		data     string
		revision int64
	}{
		"no data": {"", 1}, "null": {"null", 1}, "no JSON": {"{", 1}, "no object": {"[]", 1}, "negative": {"{}", -1},
	} {
		if o, err := create("bad", bad.data, bad.revision); !apierrors.Is(err, apierrors.Invalid) {
			t.Errorf("%s: %v, %v", name, o, err)
		}
	}
	const data = `{"spec": {"n": 9007199254740993, "a": "<b>"}, "b": [1, null]}`
	made := must(create("r1", data, 1))(t)
	if got := must(revisions.Get(ctx(t), &metav1.GetRequest{Namespace: "default", Name: "r1"}))(t); string(
		got.Data.Raw) != data || got.Revision != 1 {
		t.Errorf("stored: %v", got)
	}

	update := func(change func(*appsv1.ControllerRevision)) error {
		next := clone(made)
		next.Metadata.ResourceVersion = ""
		change(next)
		_, err := revisions.Update(ctx(t), &appsv1rpc.UpdateControllerRevisionRequest{Object: next})
		return err
	}
	for name, change := range map[string]func(*appsv1.ControllerRevision){
		"revision": func(o *appsv1.ControllerRevision) { o.Revision = 2 },
		"labels":   func(o *appsv1.ControllerRevision) { o.Metadata.Labels = map[string]string{"a": "b"} },
		"form of state": func(o *appsv1.ControllerRevision) {
			o.Data.Raw = []byte(`{"b":[1,null],"spec":{"a":"\u003cb>","n":9007199254740993}}`)
		},
	} {
		if err := update(change); err != nil {
			t.Errorf("%s may not change: %v", name, err)
		}
	}
	for name, change := range map[string]func(*appsv1.ControllerRevision){
		"state": func(o *appsv1.ControllerRevision) { o.Data.Raw = []byte(`{}`) },
		"a large number": func(o *appsv1.ControllerRevision) {
			o.Data.Raw = []byte(`{"spec":{"n":9007199254740992,"a":"<b>"},"b":[1,null]}`)
		},
		"state to none":   func(o *appsv1.ControllerRevision) { o.Data = nil },
		"to more":         func(o *appsv1.ControllerRevision) { o.Data.Raw = append(o.Data.Raw, " {}"...) },
		"to what is none": func(o *appsv1.ControllerRevision) { o.Data.Raw = []byte("{") },
		"negative":        func(o *appsv1.ControllerRevision) { o.Revision = -1 },
	} {
		if err := update(change); !apierrors.Is(err, apierrors.Invalid) {
			t.Errorf("%s may change: %v", name, err)
		}
	}
	patch := func(kind, text string) (*appsv1.ControllerRevision, error) {
		return revisions.Patch(ctx(t), &metav1.PatchRequest{
			Namespace: "default", Name: "r1", PatchType: "application/" + kind + "+json", Patch: []byte(text),
		})
	}
	if o, err := patch("strategic-merge-patch", `{"revision":5,"metadata":{"annotations":{"a":"b"}}}`); err != nil ||
		o.Revision != 5 {
		t.Errorf("patched: %v, %v", o, err)
	}
	if _, err := patch("merge-patch", `{"data":{"b":[]}}`); !apierrors.Is(err, apierrors.Invalid) {
		t.Errorf("a patch may change the state: %v", err)
	}
}

package defaultstorageclass_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	metav1 "monoplane.dev/api/meta/v1"
	storagev1 "monoplane.dev/api/storage/v1"
	storagev1rpc "monoplane.dev/api/storage/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/controllers/defaultstorageclass"
	"monoplane.dev/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs the controller for a while, as a server that starts and ends does.
func start(t *testing.T, server *apitest.Server, name string) {
	t.Helper()
	c, err := defaultstorageclass.New(defaultstorageclass.Config{
		Client: server.Controller("default-storage-class"), Name: name,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Run(ctx)
	}()
	time.Sleep(time.Minute)
	if err := c.Ready(); err != nil {
		t.Error(err)
	}
	cancel()
	<-done
}

// classes returns the classes, those for claims that name none with an asterisk.
func classes(t *testing.T, server *apitest.Server) string {
	t.Helper()
	list, err := server.Admin().StorageClasses.List(t.Context(), &metav1.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, c := range list.Items {
		name := c.Metadata.Name
		if c.Metadata.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" {
			name += "*"
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// A new cluster gets a class, once. What the user makes of it stays.
func TestGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apitest.Start(t)
		wants := func(when, want string) {
			t.Helper()
			if got := classes(t, server); got != want {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
		}
		start(t, server, "")
		wants("none is wanted", "")
		failures := 3
		server.React(func(_ context.Context, method string, _ any) error {
			if failures > 0 && (strings.Contains(method, "StorageClasses/Create") ||
				strings.Contains(method, "Namespaces/Update")) {
				failures--
				return apierrors.New(apierrors.ServiceUnavailable, "down")
			}
			return nil
		})
		start(t, server, "standard")
		wants("at the first start", "standard*")
		all := server.Admin().StorageClasses
		c, err := all.Get(t.Context(), &metav1.GetRequest{Name: "standard"})
		if err != nil || c.Provisioner != "monoplane.dev/local" || c.GetVolumeBindingMode() != "WaitForFirstConsumer" ||
			c.GetReclaimPolicy() != "Delete" {
			t.Errorf("%v, %v", c, err)
		}
		changed := object.Clone(c)
		changed.Metadata.Annotations = nil
		if _, err := all.Update(t.Context(), &storagev1rpc.UpdateStorageClassRequest{Object: changed}); err != nil {
			t.Fatal(err)
		}
		start(t, server, "standard")
		wants("the user wants no default", "standard")
		if _, err := all.Delete(t.Context(), &metav1.DeleteRequest{Name: "standard"}); err != nil {
			t.Fatal(err)
		}
		start(t, server, "standard")
		wants("the user has deleted it", "")
		start(t, server, "another")
		wants("another is wanted", "another*")
	})
}

// A cluster that has a default class gets no other, and a class of that name stays as it is.
func TestNotGiven(t *testing.T) {
	for name, theirs := range map[string]*storagev1.StorageClass{
		"disks*": {Metadata: &metav1.ObjectMeta{Name: "disks", Annotations: map[string]string{
			"storageclass.kubernetes.io/is-default-class": "true"}}, Provisioner: "example.com/disks"},
		"standard": {Metadata: &metav1.ObjectMeta{Name: "standard"}, Provisioner: "example.com/disks"},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := apitest.Start(t)
			_, err := server.Admin().StorageClasses.Create(t.Context(),
				&storagev1rpc.CreateStorageClassRequest{Object: theirs})
			if err != nil {
				t.Fatal(err)
			}
			start(t, server, "standard")
			if got := classes(t, server); got != name {
				t.Errorf("beside %s: %q", name, got)
			}
		})
	}
}

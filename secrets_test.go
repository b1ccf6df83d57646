package monoplane_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"monoplane.dev"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/object"
)

// buffer takes what is logged.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// Whatever is done with a Secret, well or badly, its value is in no log, no event and no file of the cluster.
func TestSecretsAreWrittenNowhere(t *testing.T) {
	const value = "nobody may ever read this value"
	dir, logged := t.TempDir(), &buffer{}
	synctest.Test(t, func(t *testing.T) {
		c := start(t, monoplane.Config{
			DataDir: dir, UnsafeNoFsync: true,
			Logger: slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
		api := c.Client()
		secret := &corev1.Secret{
			Metadata: &metav1.ObjectMeta{Name: "s", Namespace: "default"}, Data: map[string][]byte{"key": []byte(value)},
		}
		if _, err := api.Secrets.Create(t.Context(), &corev1rpc.CreateSecretRequest{
			Namespace: "default", Object: object.Clone(secret),
		}); err != nil {
			t.Fatal(err)
		}
		refused := func(what string, err error) {
			t.Helper()
			if err == nil || bytes.Contains([]byte(err.Error()), []byte(value)) {
				t.Errorf("%s: %v", what, err)
			}
		}
		_, err := api.Secrets.Create(t.Context(), &corev1rpc.CreateSecretRequest{
			Namespace: "default", Object: object.Clone(secret),
		})
		refused("created again", err)
		bad := object.Clone(secret)
		bad.Data[value] = []byte(value) // which is no name of a key
		bad.Metadata.Name = "bad"
		_, err = api.Secrets.Create(t.Context(), &corev1rpc.CreateSecretRequest{Namespace: "default", Object: bad})
		if err == nil {
			t.Error("created with a key that has spaces")
		}
		stale := object.Clone(secret)
		stale.Metadata.ResourceVersion = "1"
		_, err = api.Secrets.Update(t.Context(), &corev1rpc.UpdateSecretRequest{
			Namespace: "default", Name: "s", Object: stale,
		})
		refused("updated from an old state", err)

		pod := newPod("reader")
		pod.Spec.Containers[0].Env = []*corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{
			SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: &corev1.LocalObjectReference{Name: "s"}, Key: "key",
			},
		}}}
		pod.Spec.Volumes = []*corev1.Volume{{Name: "v", VolumeSource: &corev1.VolumeSource{
			Secret: &corev1.SecretVolumeSource{SecretName: "s"},
		}}}
		create(t, api, pod)
		if err := waitFor(t.Context(), api, "reader", running); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		events, err := api.Events.List(t.Context(), &metav1.ListRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if text, err := protojson.Marshal(events); err != nil || len(events.GetItems()) == 0 ||
			bytes.Contains(text, []byte(value)) {
			t.Errorf("events: %s, %v", text, err)
		}
		if _, err := api.Secrets.Delete(t.Context(), &metav1.DeleteRequest{Namespace: "default", Name: "s"}); err != nil {
			t.Error(err)
		}
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	find := func(where string, text []byte) {
		for _, form := range []string{value, base64.StdEncoding.EncodeToString([]byte(value))} {
			if i := bytes.Index(text, []byte(form)); i >= 0 {
				t.Errorf("%s: %.200q", where, text[max(0, i-100):])
			}
		}
	}
	if logged.b.Len() == 0 {
		t.Error("nothing was logged")
	}
	find("the log", logged.b.Bytes())
	files := 0
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		find(path, text)
		files++
		return err
	})
	if err != nil || files < 3 {
		t.Errorf("%d files, %v", files, err)
	}
}

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"monoplane.dev"
	"monoplane.dev/internal/datadir"
	"monoplane.dev/internal/dirlock"
)

// upFlags returns the flags of up, as they are after the arguments.
func upFlags(t *testing.T, args ...string) *pflag.FlagSet {
	t.Helper()
	flags := pflag.NewFlagSet("up", pflag.ContinueOnError)
	new(upOptions).add(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return flags
}

// exampleOf returns a value for a flag that is not its default, with what is not easily told from the text around it.
func exampleOf(t *testing.T, f *pflag.Flag) string {
	t.Helper()
	switch f.Value.Type() {
	case "string":
		return "[a, \"b\"]\n"
	case "bool":
		if f.DefValue == "true" {
			return "false"
		}
		return "true"
	case "int", "int64", "float64":
		return "7"
	case "duration":
		return "1h2m3s"
	case "stringSlice":
		return `a,"b,c",d=e`
	case "stringToString":
		return `a=b,"c=d,e",f=[g]`
	default:
		t.Fatalf("--%s has a type that is not known here: %s", f.Name, f.Value.Type())
		return ""
	}
}

// What a flag of up was set to, it is again after it was written down.
func TestEverySettingIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	data, err := datadir.Make(dir)
	if err != nil {
		t.Fatal(err)
	}
	upFlags(t).VisitAll(func(f *pflag.Flag) {
		for _, text := range []string{exampleOf(t, f), ""} {
			before, after := upFlags(t), upFlags(t)
			if before.Set(f.Name, text) != nil {
				continue // not every flag can be empty
			}
			if _, err := keepLastUp(dir, readSettings(before), false); err != nil {
				t.Fatal(err)
			}
			last, err := readLastUp(data)
			if err != nil {
				t.Fatal(err)
			}
			if err := last.apply(after); err != nil {
				t.Errorf("--%s=%q: %v", f.Name, text, err)
			}
			want := before.Lookup(f.Name).Value.String()
			if slices.Contains(unkept, f.Name) {
				want = f.DefValue
			}
			if got := after.Lookup(f.Name).Value.String(); got != want {
				t.Errorf("--%s=%q is %s afterwards, want %s", f.Name, text, got, want)
			}
		}
	})
	if settings := readSettings(upFlags(t)); len(settings) > 0 {
		t.Errorf("without flags these are kept: %v", settings)
	}
}

// A server that has not started yet does not take the place of an earlier one, whose pods may be there.
func TestLastUpThatHasStarted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	data, err := datadir.Make(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		starting bool
		want     string
	}{{"first", true, "first"}, {"second", true, "first"}, {"second", false, "second"}} {
		kept, err := keepLastUp(dir, map[string][]string{"node-name": {c.name}}, c.starting)
		if err != nil || kept != (c.want == c.name) {
			t.Fatalf("%+v: kept: %v, %v", c, kept, err)
		}
		last, err := readLastUp(data)
		if err != nil || last.Settings["node-name"][0] != c.want {
			t.Errorf("after %+v: %+v, %v", c, last, err)
		}
	}
}

// A file by another version, or a damaged one, is refused by what is wrong with it.
func TestLastUpOfAnotherVersion(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	data, err := datadir.Make(dir)
	if err != nil {
		t.Fatal(err)
	}
	if last, err := readLastUp(data); last != nil || err != nil {
		t.Errorf("without a file: %v, %v", last, err)
	}
	if _, err := keepLastUp(dir, map[string][]string{"colour": {"red"}}, false); err != nil {
		t.Fatal(err)
	}
	last, err := readLastUp(data)
	if err != nil {
		t.Fatal(err)
	}
	if err := last.apply(upFlags(t)); err == nil || !strings.Contains(err.Error(), `"colour"`) {
		t.Errorf("a setting that is not known: %v", err)
	}
	if err := data.Write(lastUpFile, []byte("{")); err != nil {
		t.Fatal(err)
	}
	if _, err := readLastUp(data); err == nil || !strings.Contains(err.Error(), lastUpFile) {
		t.Errorf("half a file: %v", err)
	}
	missing := &lastUp{Directory: filepath.Join(dir, "gone")}
	if _, err := missing.options(dir); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("a working directory that is gone: %v", err)
	}
}

// What another server has written meanwhile stays.
func TestLastUpOfTheNextServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	lock, err := dirlock.Acquire(dir)
	if err != nil {
		t.Fatal(err)
	}
	exists := func() bool {
		_, err := os.Stat(filepath.Join(dir, lastUpFile))
		return err == nil
	}
	if _, err := keepLastUp(dir, nil, true); err != nil {
		t.Fatal(err)
	}
	if err := forget(dir, lastUpFile); err != nil || !exists() {
		t.Errorf("while a server runs: %v, the file is there: %v", err, exists())
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	if err := forget(dir, lastUpFile); err != nil || exists() {
		t.Errorf("when none runs: %v, the file is there: %v", err, exists())
	}
}

// What a server has not taken away when it ended is taken away by who asked for its end.
func TestDownTakesAwayTheRest(t *testing.T) {
	t.Chdir(t.TempDir())
	dir := filepath.Join(t.TempDir(), "data")
	// As if its end had gone wrong: nobody removes what it has kept.
	const anyPort = "127.0.0.1:0"
	cluster, err := monoplane.Start(t.Context(), monoplane.Config{DataDir: dir, Runtime: monoplane.FakeRuntime(),
		Listen: anyPort, GRPCListen: anyPort})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		<-cluster.Done()
		ended <- cluster.Stop(context.Background())
	}()
	if _, err := keepLastUp(dir, map[string][]string{"runtime": {"fake"}}, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"The server has not taken away all that it had here", "no cluster runs on " + dir} {
		var out strings.Builder
		down := newDownCommand()
		down.SetArgs([]string{"--data-dir", dir})
		down.SetOut(&out)
		down.SetErr(&out)
		err := down.ExecuteContext(t.Context())
		if said := out.String() + fmt.Sprint(err); !strings.Contains(said, want) {
			t.Errorf("it said %q, want %q", said, want)
		}
		if _, err := os.Stat(filepath.Join(dir, lastUpFile)); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", lastUpFile, err)
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

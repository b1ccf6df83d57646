package layers

import (
	"encoding/json"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	grpc       = "google.golang.org/grpc"
	http       = "net/http"
	etcdServer = "go.etcd.io/etcd/server/v3/etcdserver"
)

// rule says what the packages that match must not link, those for tests excepted.
type rule struct {
	name      string
	packages  *regexp.Regexp
	except    []string
	forbidden []string
}

var rules = []rule{
	{
		name:      "messages without services",
		packages:  regexp.MustCompile(`^api/[^/]+/v[^/]+$`),
		forbidden: []string{grpc, http},
	},
	{
		name:     "rules and codecs without services",
		packages: regexp.MustCompile(`^(rules|codec|object)(/|$)`),
		except: []string{
			"codec/internal/random", // messages of every type, those of the services too
			"object/service",        // what services are made of
			"rules/precondition",    // answers with errors of the API, which know their HTTP status
			"rules/servicerange",    // reads names of ports with a library that serves HTTP too
		},
		forbidden: []string{grpc, http},
	},
	{
		name:      "errors without servers",
		packages:  regexp.MustCompile(`^apierrors$`),
		forbidden: []string{grpc},
	},
	{
		name:      "a server without etcd's",
		packages:  regexp.MustCompile(`^(apiserver|client|scheduler|controllers|nodeagent)(/|$)`),
		except:    []string{"apiserver/store/etcd/embedded"},
		forbidden: []string{etcdServer},
	},
}

type pkg struct {
	ImportPath string
	Deps       []string
}

// TestLinks looks at what each package of the module links.
func TestLinks(t *testing.T) {
	packages := list(t)
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			seen, excepted := 0, make(map[string]bool)
			for _, p := range packages {
				name := strings.TrimPrefix(p.ImportPath, "monoplane.dev/")
				if !r.packages.MatchString(name) || strings.Contains(name, "/test/") {
					continue
				}
				seen++
				for _, bad := range r.forbidden {
					switch linked := slices.Contains(p.Deps, bad); {
					case linked && slices.Contains(r.except, name):
						excepted[name] = true
					case linked:
						t.Errorf("%s links %s; `go list -deps ./%s` says by which way", name, bad, name)
					}
				}
			}
			if seen == 0 {
				t.Errorf("no package matches %s", r.packages)
			}
			for _, name := range r.except {
				if !excepted[name] {
					t.Errorf("%s is excepted, and needs not be", name)
				}
			}
		})
	}
}

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Deps", "monoplane.dev/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	var all []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

package monoplane

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/pprof"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"monoplane.dev/apiserver/auth"
)

// profilesPath is where Go's profiles are.
const profilesPath = "/debug/pprof/"

// paths are what the server tells of itself, to those whose roles name the paths: its metrics, the results of its
// health checks, its status and its profiles.
func (c *Cluster) paths(p *parts) map[string]http.Handler {
	profiles := http.NewServeMux()
	profiles.HandleFunc(profilesPath, pprof.Index)
	profiles.HandleFunc(profilesPath+"cmdline", pprof.Cmdline)
	profiles.HandleFunc(profilesPath+"profile", pprof.Profile)
	profiles.HandleFunc(profilesPath+"symbol", pprof.Symbol)
	profiles.HandleFunc(profilesPath+"trace", pprof.Trace)
	out := map[string]http.Handler{
		auth.MetricsPath:           promhttp.HandlerFor(p.metrics, promhttp.HandlerOpts{}),
		auth.MetricsPath + "/slis": promhttp.HandlerFor(p.slis.registry, promhttp.HandlerOpts{}),
		profilesPath:               profiles,
	}
	known := append(slices.Collect(maps.Keys(out)), "/healthz", "/livez", "/readyz", "/statusz", "/version")
	slices.Sort(known)
	out["/statusz"] = statusz(time.Now(), known)
	return out
}

// statusz answers with how long the server has been up, and which version it is, as servers of Kubernetes do.
func statusz(started time.Time, paths []string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintf(w, "monoplane statusz\nWarning: this is for people, and may change.\n\nStarted: %s\nUp: %s\n"+
			"Go version: %s\nBinary version: %s\nPaths: %s\n", started.UTC().Format(time.UnixDate),
			time.Since(started).Round(time.Second), runtime.Version(), kubernetesVersion, strings.Join(paths, " "))
	}
}

// slis are the results of health checks, under the names of Kubernetes.
type slis struct {
	registry *prometheus.Registry
	last     *prometheus.GaugeVec
	total    *prometheus.CounterVec
}

func newSLIs() *slis {
	s := &slis{
		registry: prometheus.NewRegistry(),
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "kubernetes", Name: "healthcheck", Help: "[STABLE] The last result of a health check: 1 for a good one.",
		}, []string{"name", "type"}),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "kubernetes", Name: "healthchecks_total", Help: "[STABLE] Health checks, by result.",
		}, []string{"name", "type", "status"}),
	}
	s.registry.MustRegister(s.last, s.total)
	return s
}

// observe counts a health check.
func (s *slis) observe(endpoint, check string, err error) {
	good, status := 1.0, "success"
	if err != nil {
		good, status = 0, "error"
	}
	s.last.WithLabelValues(check, endpoint).Set(good)
	s.total.WithLabelValues(check, endpoint, status).Inc()
}

package fake

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/internal/intern"
)

// saved is what runs, in the form in which it outlives the process.
type saved struct {
	LastIP    netip.Addr
	Sandboxes []savedSandbox
}

type savedSandbox struct {
	ID, IP      string
	Created     time.Time
	Ready       bool
	Config      []byte
	Annotations map[string]string `json:",omitempty"`
	Containers  []savedContainer
}

type savedContainer struct {
	ID                         string
	State                      runtimeapi.ContainerState
	Created, Started, Finished time.Time
	Code                       int32
	Config                     []byte
}

// Save writes down what there is, for Restore in the next process. Nothing may use the runtime any more.
func (r *Runtime) Save(w io.Writer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := saved{LastIP: r.lastIP}
	for _, s := range r.sandboxes {
		box := savedSandbox{ID: s.id, IP: s.ip, Created: s.created, Ready: s.ready, Config: s.packed,
			Annotations: s.annotations}
		for _, c := range s.containers {
			if c.exit != nil {
				c.exit.Stop()
			}
			box.Containers = append(box.Containers, savedContainer{
				ID: c.id, State: c.state, Created: c.created, Started: c.started, Finished: c.finished, Code: c.code,
				Config: c.packed,
			})
		}
		all.Sandboxes = append(all.Sandboxes, box)
	}
	return json.NewEncoder(w).Encode(all)
}

// Restore takes up what Save has written, before anything else is done with the runtime. Containers have gone on
// meanwhile: one that was to exit exits. A stop that was under way is forgotten; its caller is to begin anew
// (spec DEL-10). On an error nothing has been taken up.
func (r *Runtime) Restore(text []byte) error {
	var all saved
	if err := json.Unmarshal(text, &all); err != nil {
		return fmt.Errorf("restore simulated pods: %w", err)
	}
	var pool intern.Pool // the annotations were the pods' own; many have the same
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cfg.PodCIDR.Contains(all.LastIP) {
		r.lastIP = all.LastIP
	}
	for _, box := range all.Sandboxes {
		s := &sandbox{
			id: box.ID, ip: box.IP, created: box.Created, ready: box.Ready, packed: box.Config,
			annotations: intern.Map(&pool, box.Annotations),
		}
		r.sandboxes[s.id] = s
		for _, old := range box.Containers {
			c := &container{
				id: old.ID, sandbox: s, state: old.State, created: old.Created, started: old.Started, finished: old.Finished,
				code: old.Code, packed: old.Config,
			}
			s.containers = append(s.containers, c)
			r.containers[c.id] = c
			if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
				continue
			}
			r.exitByItself(c, c.behaviour())
		}
	}
	return nil
}

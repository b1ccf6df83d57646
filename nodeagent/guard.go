package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/client/record"
	"monoplane.dev/nodeagent/admission"
	"monoplane.dev/nodeagent/criconfig"
	"monoplane.dev/nodeagent/eviction"
	"monoplane.dev/nodeagent/gc"
	"monoplane.dev/nodeagent/hostinfo"
	"monoplane.dev/nodeagent/podstate"
	"monoplane.dev/nodeagent/usage"
)

// guard keeps the machine from running out of what everything on it needs: it looks at the machine every guardPeriod,
// says in the node's conditions what is short, and makes room, first by what nobody needs, then by evicting one pod at
// a time. Pods are measured only when one must go, or has a limit of local storage. spec: QOS-2
type guard struct {
	agent    *Agent
	pressure *eviction.Pressure
	images   gc.Images
	// leaving is the pod that was evicted last, until it is gone or evictionWait is over.
	leaving *worker
	since   time.Time
	// cleaned is when images were looked at last.
	cleaned time.Time
	// measured says when pods were measured last, and took how long that took.
	measured time.Time
	took     time.Duration
	// helpless, unmeasured and unread keep the log from repeating itself.
	helpless, unmeasured, unread trouble

	mu         sync.Mutex
	conditions []string
	// imageDir is where images are, empty until that is known.
	imageDir string
}

// The times of the guard.
const (
	guardPeriod  = 10 * time.Second
	imagePeriod  = 5 * time.Minute
	evictionWait = 30 * time.Second
	// patienceOfMeasuring: measuring what pods store takes at most one part in so many of the time.
	patienceOfMeasuring = 20
)

func newGuard(a *Agent) *guard {
	if a.cfg.Simulated && a.cfg.Readings == nil {
		return nil
	}
	var ours func(*runtimeapi.Container) bool
	if a.cfg.Owner != "" {
		ours = func(c *runtimeapi.Container) bool { return c.GetLabels()[criconfig.LabelOwner] == a.cfg.Owner }
	}
	return &guard{
		agent: a, images: gc.Images{Ours: ours}, pressure: eviction.NewPressure(a.cfg.thresholds, a.cfg.Eviction.Transition),
		helpless:   trouble{what: "the machine runs out of something", log: a.cfg.Logger},
		unmeasured: trouble{what: "the runtime does not say what pods use", log: a.cfg.Logger},
		unread:     trouble{what: "what pods store cannot be measured as a whole", log: a.cfg.Logger},
	}
}

// pressing returns the conditions that say what the node runs out of.
func (a *Agent) pressing() []string {
	if a.guard == nil {
		return nil
	}
	a.guard.mu.Lock()
	defer a.guard.mu.Unlock()
	return a.guard.conditions
}

// run looks from when the agent is ready until ctx ends.
func (g *guard) run(ctx context.Context) error {
	select {
	case <-g.agent.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	tick := time.NewTicker(guardPeriod)
	defer tick.Stop()
	for {
		g.look(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (g *guard) look(ctx context.Context) {
	readings := g.read(ctx)
	verdict := g.pressure.Observe(now(), readings)
	g.mu.Lock()
	changed := !slices.Equal(g.conditions, verdict.Conditions)
	g.conditions = verdict.Conditions
	g.mu.Unlock()
	if changed {
		g.agent.cfg.Logger.Warn("what the node runs out of has changed", "conditions", verdict.Conditions)
		g.agent.LookAtNode()
	}
	if now().Sub(g.cleaned) >= imagePeriod {
		g.cleaned = now()
		g.collectImages(ctx)
		g.agent.removeOrphanLogs(ctx)
	}
	if g.leaves() || g.evictGreedy(ctx) || len(verdict.Act) == 0 {
		return
	}
	g.reclaim(ctx, verdict.Act[0], readings)
}

// leaves reports whether the pod that was evicted last may still make room.
func (g *guard) leaves() bool {
	if g.leaving != nil && (now().Sub(g.since) >= evictionWait || !g.leaving.waitedFor()) {
		g.leaving = nil
	}
	return g.leaving != nil
}

// reclaim makes room: by what nobody needs where that helps, else by evicting a pod.
func (g *guard) reclaim(ctx context.Context, t eviction.Threshold, readings eviction.Readings) {
	a := g.agent
	a.nodeEvent(record.Warning, "EvictionThresholdMet", "Attempting to reclaim "+t.Signal.Resource())
	onNode, onImages := strings.HasPrefix(string(t.Signal), "nodefs"), strings.HasPrefix(string(t.Signal), "imagefs")
	apart := g.imagesApart()
	if onImages || onNode && !apart {
		g.removeImages(ctx, -1)
		if readings = g.read(ctx); g.pressure.Relieved(readings) {
			return
		}
	}
	// What lies on another file system than the one that fills up does not count.
	all := func(*corev1.Pod) bool { return true }
	pods := g.measure(ctx, all, onNode || onImages && !apart, !onNode || !apart)
	victim := eviction.First(t.Signal, pods)
	if victim == nil {
		g.helpless.tell(fmt.Errorf("signal %s: no pod runs that may be evicted", t.Signal))
		return
	}
	g.helpless.tell(nil)
	grace := time.Second // hard thresholds leave no time
	if !t.Hard() {
		grace = max(a.cfg.Eviction.MaxGrace, time.Second)
	}
	message := eviction.Message(t, readings, victim)
	g.evict(victim.Pod, podstate.Evict{Reason: eviction.Reason, Message: message, Grace: grace, Disruption: message})
}

// evictGreedy evicts the pods that exceed their own limits of local storage, and reports whether there were any.
func (g *guard) evictGreedy(ctx context.Context) bool {
	if now().Sub(g.measured) < patienceOfMeasuring*g.took {
		return false
	}
	began := time.Now()
	pods := g.measure(ctx, func(p *corev1.Pod) bool { return eviction.LimitsStorage(p.GetSpec()) }, true, true)
	g.measured, g.took = now(), time.Since(began)
	evicted := false
	for i := range pods {
		if message := eviction.Excess(&pods[i]); message != "" && !pods[i].Critical {
			g.evict(pods[i].Pod, podstate.Evict{Reason: eviction.Reason, Message: message, Grace: evictionGrace})
			evicted = true
		}
	}
	return evicted
}

func (g *guard) evict(p *corev1.Pod, why podstate.Evict) {
	w := g.agent.worker(uidOf(p))
	if w == nil {
		return
	}
	g.leaving, g.since = w, now()
	w.evict(p, why)
}

// evict ends a pod that has taken too much, or that others have to go before, and says so, once.
func (w *worker) evict(p *corev1.Pod, why podstate.Evict) {
	w.mu.Lock()
	said := w.evicted
	w.evicted = true
	w.mu.Unlock()
	if !said {
		w.agent.cfg.Logger.Warn("evicting a pod", "pod", name(p), "uid", w.uid, "reason", why.Message)
		w.agent.cfg.Recorder.Event(p, record.Warning, why.Reason, "Evicting", why.Message)
	}
	w.post(why)
}

// measure returns what the pods use that run here and that which wants. What they store counts on demand only: files
// are logs and volumes, layers what containers have written elsewhere.
func (g *guard) measure(ctx context.Context, which func(*corev1.Pod) bool, files, layers bool) []eviction.Pod {
	a := g.agent
	var out []eviction.Pod
	for _, w := range a.list() {
		w.look(func(m *podstate.StateMachine) {
			if m.Life() == podstate.Active && !m.Empty() && which(m.Pod()) {
				out = append(out, eviction.Pod{Pod: m.Granted(), Critical: admission.Critical(m.Pod(), w.static != nil)})
			}
		})
	}
	if len(out) == 0 {
		return nil
	}
	all, err := a.usage(ctx)
	g.unmeasured.tell(err)
	var unread []error
	for i := range out {
		p := &out[i]
		p.Containers = make(map[string]eviction.Usage)
		if u := all[uidOf(p.Pod)]; u != nil {
			p.Measured, p.Usage.Processes = true, u.Processes
			for c, used := range u.Containers {
				of := eviction.Usage{Memory: used.Memory}
				if layers {
					of.Disk, of.Inodes = used.Layer, used.LayerInodes
				}
				p.Containers[c] = of
			}
		}
		if files {
			if err := a.measureDisk(ctx, p); err != nil {
				unread = append(unread, fmt.Errorf("pod %s: %w", name(p.Pod), err))
			}
		}
		for _, u := range p.Containers {
			p.Usage.Memory += u.Memory
			p.Usage.Disk += u.Disk
			p.Usage.Inodes += u.Inodes
		}
	}
	if files && ctx.Err() == nil {
		g.unread.tell(errors.Join(unread...))
	}
	return out
}

// usage asks the runtime what the agent's pods use, by uid.
func (a *Agent) usage(ctx context.Context) (map[string]*usage.Pod, error) {
	return usage.Pods(ctx, a.cfg.Runtime, a.owns)
}

// read returns what the machine has.
func (g *guard) read(ctx context.Context) eviction.Readings {
	a := g.agent
	if a.cfg.Readings != nil {
		return a.cfg.Readings(ctx)
	}
	r := eviction.Readings{}
	total, available := hostinfo.Memory()
	if total > 0 {
		r[eviction.Memory] = eviction.Reading{Available: available, Capacity: total}
		g.readAllocatable(ctx, r)
	}
	node := hostinfo.RoomOf(a.cfg.DataDir)
	readRoom(r, node, eviction.NodeFS, eviction.NodeFSInodes)
	if images := hostinfo.RoomOf(g.imagesAt()); images.Device != node.Device {
		readRoom(r, images, eviction.ImageFS, eviction.ImageFSInodes)
	}
	if limit, used := hostinfo.PIDs(); limit > 0 {
		r[eviction.PIDs] = eviction.Reading{Available: limit - used, Capacity: limit}
	}
	return r
}

// imagesAt returns the directory of the images, empty when it is not known.
func (g *guard) imagesAt() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.imageDir
}

// imagesApart reports whether images, and what containers write outside of volumes, have a file system of their own.
func (g *guard) imagesApart() bool {
	images := hostinfo.RoomOf(g.imagesAt())
	return images.Device != 0 && images.Device != hostinfo.RoomOf(g.agent.cfg.DataDir).Device
}

func readRoom(r eviction.Readings, room hostinfo.Room, bytes, inodes eviction.Signal) {
	if room.Size > 0 {
		r[bytes] = eviction.Reading{Available: room.Available, Capacity: room.Size}
	}
	if room.Inodes > 0 { // some file systems make them as needed
		r[inodes] = eviction.Reading{Available: room.InodesFree, Capacity: room.Inodes}
	}
}

// readAllocatable adds what is left of the memory that pods may use. Pods are measured only when the machine as a
// whole uses so much that they could have come near it.
func (g *guard) readAllocatable(ctx context.Context, r eviction.Readings) {
	a := g.agent
	all := r[eviction.Memory]
	limit := all.Capacity - a.cfg.reserved("memory")
	if limit <= 0 || limit == all.Capacity || all.Available > limit/patienceOfMeasuring {
		return
	}
	pods, err := a.usage(ctx)
	if err != nil {
		return
	}
	var used int64
	for _, p := range pods {
		for _, c := range p.Containers {
			used += c.Memory
		}
	}
	r[eviction.AllocatableMemory] = eviction.Reading{Available: limit - used, Capacity: limit}
}

// collectImages removes images that nobody uses when their disk fills up.
func (g *guard) collectImages(ctx context.Context) {
	a := g.agent
	asked, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	info, err := a.cfg.Images.ImageFsInfo(asked, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return // not every runtime says
	}
	g.mu.Lock()
	for _, f := range info.GetImageFilesystems() {
		g.imageDir = f.GetFsId().GetMountpoint()
	}
	g.mu.Unlock()
	p := a.cfg.ImageGC
	room := hostinfo.RoomOf(g.imagesAt())
	free := p.ToFree(room.Size, room.Available)
	if !g.observeImages(ctx) {
		return
	}
	if free > 0 || p.MaxAge > 0 {
		freed := g.removeUnused(ctx, free)
		if freed == 0 && free > 0 && a.hasImages(ctx) {
			a.nodeEvent(record.Warning, "ImageGCFailed",
				"the disk of the images fills up, and there is no image that nobody uses")
		}
	}
}

// hasImages reports whether the runtime keeps images that take room at all.
func (a *Agent) hasImages(ctx context.Context) bool {
	images, err := a.listImages(ctx)
	return err == nil && slices.ContainsFunc(images, func(i *corev1.ContainerImage) bool { return i.GetSizeBytes() > 0 })
}

// removeImages removes images that nobody uses; all of them when bytes is negative.
func (g *guard) removeImages(ctx context.Context, bytes int64) {
	if g.observeImages(ctx) {
		g.removeUnused(ctx, bytes)
	}
}

// observeImages looks at which images there are, and which are in use.
func (g *guard) observeImages(ctx context.Context) bool {
	a := g.agent
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	at := now()
	images, err := a.cfg.Images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return false
	}
	// Of all users of the runtime, not only this agent's.
	containers, err := a.cfg.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return false
	}
	g.images.Observe(now(), images.GetImages(), containers.GetContainers())
	a.forgetImages(images.GetImages(), at)
	return true
}

// forgetImages removes the records of images that the runtime no longer has; it had all of these at a time. A runtime
// that shows none at all may just not have found them: what came with credentials would be for everybody then.
func (a *Agent) forgetImages(all []*runtimeapi.Image, at time.Time) {
	if a.pulled == nil || len(all) == 0 {
		return
	}
	var refs []string
	for _, image := range all {
		refs = append(refs, image.GetId())
	}
	if err := a.pulled.Prune(refs, at); err != nil {
		a.cfg.Logger.Warn("records of images that are gone cannot be removed", "error", err)
	}
}

// removeUnused removes images and returns how many went.
func (g *guard) removeUnused(ctx context.Context, bytes int64) (gone int) {
	a := g.agent
	return g.images.Collect(now(), a.cfg.ImageGC, bytes, func(id string) (int64, error) {
		before := hostinfo.RoomOf(g.imagesAt()).Available
		call, cancel := context.WithTimeout(ctx, runtimeTimeout)
		defer cancel()
		_, err := a.cfg.Images.RemoveImage(call, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: id}})
		switch {
		case status.Code(err) == codes.FailedPrecondition:
			a.cfg.Logger.Debug("an image stays that others use", "image", id, "error", err)
		case err != nil:
			a.cfg.Logger.Warn("an image that nobody uses cannot be removed", "image", id, "error", err)
		default:
			a.cfg.Logger.Info("removed an image that nobody used", "image", id)
		}
		return hostinfo.RoomOf(g.imagesAt()).Available - before, err
	})
}

package nodeagent

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
	"monoplane.dev/codec/value"
	"monoplane.dev/nodeagent/diskuse"
	"monoplane.dev/nodeagent/hostinfo"
	"monoplane.dev/nodeagent/podstate"
	"monoplane.dev/nodeagent/summary"
	"monoplane.dev/nodeagent/usage"
	"monoplane.dev/nodeagent/volumes"
)

// summary returns what the node and its pods use; brief leaves out all that is stored.
func (a *Agent) summary(ctx context.Context, brief bool) (*summary.Summary, error) {
	used, report, err := a.sampler.get(ctx, a)
	if err != nil {
		return nil, err
	}
	out := &summary.Summary{Node: a.nodeSummary(used, report), Pods: []summary.Pod{}}
	var stored map[string]*podDisk
	if !brief {
		stored = a.sampler.disks.get(ctx, a)
		a.addNodeDisks(&out.Node)
	}
	for _, w := range a.here() {
		if p := used.pods[w.uid]; p != nil {
			out.Pods = append(out.Pods, podSummary(w, p, stored[w.uid], used.at))
		}
	}
	return out, nil
}

// nodeSummary says what the machine uses, pods and all.
func (a *Agent) nodeSummary(used sample, report *nodev1rpc.UsageReport) summary.Node {
	at := summary.Time{Time: used.at}
	total, available, memory := used.total, used.available, used.memory
	n := summary.Node{Name: a.cfg.NodeName, StartTime: summary.Time{Time: hostinfo.Booted()}}
	if used.cpu > 0 {
		n.CPU = &summary.CPU{Time: at, NanoCores: summary.Known(report.GetNode().GetNanoCores()),
			CoreNanoSeconds: summary.Known(int64(used.cpu))}
	}
	if total > 0 {
		n.Memory = &summary.Memory{
			Time: at, Available: summary.Known(available), Usage: summary.Known(memory.Used),
			WorkingSet: summary.Known(total - available), RSS: summary.Known(memory.Anonymous),
			Faults: summary.Known(memory.Faults), MajorFaults: summary.Known(memory.MajorFaults),
		}
		n.Swap = &summary.Swap{Time: at, Available: summary.Known(memory.SwapFree),
			Usage: summary.Known(memory.SwapTotal - memory.SwapFree)}
	}
	for i, counted := range used.interfaces {
		one := summary.Interface{
			Name: counted.Name, RxBytes: summary.Known(counted.RxBytes), RxErrors: summary.Known(counted.RxErrors),
			TxBytes: summary.Known(counted.TxBytes), TxErrors: summary.Known(counted.TxErrors),
		}
		if i == 0 {
			n.Network = &summary.Network{Time: at, Interface: one}
		}
		n.Network.Interfaces = append(n.Network.Interfaces, one)
	}
	return n
}

// addNodeDisks says what the machine stores, and how many tasks there are.
func (a *Agent) addNodeDisks(n *summary.Node) {
	at := now()
	n.FS = fileSystem(a.cfg.DataDir, at)
	images := n.FS
	if a.guard != nil {
		if dir := a.guard.imagesAt(); dir != "" {
			images = fileSystem(dir, at)
		}
	}
	n.Runtime = &summary.Runtime{ImageFS: images, ContainerFS: images}
	if limit, tasks := hostinfo.PIDs(); limit > 0 {
		n.Limit = &summary.Rlimit{Time: summary.Time{Time: at}, MaxPID: &limit, Running: &tasks}
	}
}

// fileSystem says what is used of the file system that a directory is on; nil when it cannot be read.
func fileSystem(dir string, at time.Time) *summary.FS {
	room := hostinfo.RoomOf(dir)
	if room.Size == 0 {
		return nil
	}
	return &summary.FS{
		Time: summary.Time{Time: at}, Available: summary.Known(room.Available), Capacity: summary.Known(room.Size),
		Used: summary.Known(room.Size - room.Free), Inodes: summary.Known(room.Inodes),
		InodesFree: summary.Known(room.InodesFree), InodesUsed: summary.Known(room.Inodes - room.InodesFree),
	}
}

// files says what some files take of the file system that is around them.
func files(around *summary.FS, d disk) *summary.FS {
	out := &summary.FS{Time: summary.Time{Time: d.at}, Used: summary.Known(d.bytes), InodesUsed: summary.Known(d.inodes)}
	if around != nil {
		out.Available, out.Capacity = around.Available, around.Capacity
		out.Inodes, out.InodesFree = around.Inodes, around.InodesFree
	}
	return out
}

// podSummary says what a pod uses; stored is nil where that was not measured.
func podSummary(w *worker, used *usage.Pod, stored *podDisk, at time.Time) summary.Pod {
	p := w.pod()
	out := summary.Pod{
		Ref:       summary.Reference{Name: p.GetMetadata().GetName(), Namespace: p.GetMetadata().GetNamespace(), UID: w.uid},
		StartTime: summary.Time{Time: value.GoTime(p.GetStatus().GetStartTime())}, Containers: []summary.Container{},
	}
	if whole := used.Whole; whole != nil {
		out.CPU, out.Memory = summary.CPUOf(whole.GetCpu(), 0), summary.MemoryOf(whole.GetMemory())
		out.Network = summary.NetworkOf(whole.GetNetwork())
		if n := whole.GetProcess().GetProcessCount(); n != nil {
			out.Processes = &summary.Processes{Count: summary.Known(int64(n.GetValue()))}
		}
	}
	all := disk{at: at}
	for _, name := range containerNames(p.GetSpec()) {
		c, ok := used.Containers[name]
		if !ok {
			continue
		}
		told := c.Told
		one := summary.Container{Name: name, CPU: summary.CPUOf(told.GetCpu(), c.NanoCores),
			Memory: summary.MemoryOf(told.GetMemory()), Swap: summary.SwapOf(told.GetSwap()),
			ID: told.GetAttributes().GetId(), Image: imageOf(p.GetSpec(), name)}
		w.look(func(m *podstate.StateMachine) {
			if in, _, ok := m.Instance(name); ok {
				one.StartTime = summary.Time{Time: in.StartedAt}
			}
		})
		if stored != nil {
			layer := disk{at: at, bytes: c.Layer, inodes: c.LayerInodes}
			one.RootFS, one.Logs = files(stored.images, layer), files(stored.node, stored.logs[name])
			all.add(layer)
			all.add(stored.logs[name])
		}
		out.Containers = append(out.Containers, one)
	}
	out.Add()
	if stored != nil {
		for _, v := range stored.volumes {
			out.Volumes = append(out.Volumes, v.wire)
			all.add(v.onNode)
		}
		out.EphemeralStorage = files(stored.node, all)
	}
	return out
}

// disk is what some files take.
type disk struct {
	at            time.Time
	bytes, inodes int64
}

func (d *disk) add(o disk) { d.bytes, d.inodes = d.bytes+o.bytes, d.inodes+o.inodes }

// podDisk is what a pod stores.
type podDisk struct {
	// node and images are the file systems around it.
	node, images *summary.FS
	logs         map[string]disk
	volumes      []volumeDisk
}

// volumeDisk is what a volume holds; onNode is what of it counts as the pod's local storage.
type volumeDisk struct {
	wire   summary.Volume
	onNode disk
}

// disks measures what all pods store when somebody asks, and spends no more than a part of the time on it. The zero
// value is ready.
type disks struct {
	mu   sync.Mutex // held while it measures
	at   time.Time
	took time.Duration
	last map[string]*podDisk

	// asked has the file systems that were asked for their room and have not answered yet. One of another machine may
	// never do so.
	askedMu sync.Mutex
	asked   map[string]bool
}

// get returns what the pods store, by uid. It may be older than what they use.
func (d *disks) get(ctx context.Context, a *Agent) map[string]*podDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last != nil && now().Sub(d.at) < max(usageAge, patienceOfMeasuring*d.took) {
		return d.last
	}
	began := time.Now()
	node := fileSystem(a.cfg.DataDir, began)
	images := node
	if a.guard != nil {
		if dir := a.guard.imagesAt(); dir != "" {
			images = fileSystem(dir, began)
		}
	}
	d.last = make(map[string]*podDisk)
	for _, w := range a.here() {
		p := w.pod()
		d.last[w.uid] = &podDisk{node: node, images: images, logs: a.logsOf(ctx, p), volumes: d.volumesOf(ctx, a, p)}
	}
	d.at, d.took = now(), time.Since(began)
	return d.last
}

// logsOf measures the logs of a pod's containers, rotated ones among them.
func (a *Agent) logsOf(ctx context.Context, p *corev1.Pod) map[string]disk {
	dir := job{agent: a, pod: p}.podDir()
	if dir == "" {
		return nil
	}
	out := make(map[string]disk)
	for _, name := range containerNames(p.GetSpec()) {
		size, _ := diskuse.Of(ctx, filepath.Join(dir, name)) // What cannot be read counts as nothing.
		out[name] = disk{at: now(), bytes: size.Bytes, inodes: size.Inodes}
	}
	return out
}

// volumesOf measures the volumes of a pod.
func (d *disks) volumesOf(ctx context.Context, a *Agent, p *corev1.Pod) []volumeDisk {
	if a.volumes == nil {
		return nil
	}
	places, err := a.volumes.Places(p)
	if err != nil {
		a.cfg.Logger.Warn("the volumes of a pod cannot be measured", "pod", name(p), "error", err)
		return nil
	}
	var out []volumeDisk
	for _, at := range places {
		v := volumeDisk{wire: summary.Volume{Name: at.Name}}
		if at.Claim != "" {
			v.wire.Claim = &summary.Claim{Name: at.Claim, Namespace: p.GetMetadata().GetNamespace()}
		}
		fs := d.room(ctx, at)
		if fs == nil {
			continue
		}
		if at.Files {
			size, _ := a.cfg.Measure(ctx, at.Path) // As with logs.
			taken := disk{at: now(), bytes: size.Bytes, inodes: size.Inodes}
			fs = files(fs, taken)
			if hostinfo.RoomOf(at.Path).Device == hostinfo.RoomOf(a.cfg.DataDir).Device {
				v.onNode = taken
			}
		}
		v.wire.FS = *fs
		out = append(out, v)
	}
	return out
}

// roomPatience is how long a file system may take to say what room it has.
const roomPatience = 2 * time.Second

// room asks a volume's file system for its room; nil when it does not say. One that has not answered yet is not asked
// again.
func (d *disks) room(ctx context.Context, at volumes.Place) *summary.FS {
	if at.Files {
		return fileSystem(at.Path, now())
	}
	d.askedMu.Lock()
	defer d.askedMu.Unlock()
	if d.asked[at.Path] {
		return nil
	}
	if d.asked == nil {
		d.asked = make(map[string]bool)
	}
	d.asked[at.Path] = true
	answer := make(chan *summary.FS, 1)
	go func() {
		answer <- fileSystem(at.Path, now())
		d.askedMu.Lock()
		defer d.askedMu.Unlock()
		delete(d.asked, at.Path)
	}()
	timer := time.NewTimer(roomPatience)
	defer timer.Stop()
	select {
	case fs := <-answer:
		return fs
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil
}

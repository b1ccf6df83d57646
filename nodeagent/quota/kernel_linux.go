package quota

// What follows is the kernel's interface: linux/quota.h, linux/dqblk_xfs.h and linux/fs.h.

// projects is the kind of quotas that all commands are about.
const projects = 2

// Commands of quotactl_fd. Both file systems answer to all of them, whoever invented which.
const (
	getQuota = 0x800007
	setQuota = 0x800008
	getState = 'X'<<8 | 8
)

// block is struct if_dqblk: limits of blocks are in units of 1024 bytes, space is in bytes.
type block struct {
	hard, soft, space      uint64
	hardInodes, softInodes uint64
	inodes                 uint64
	blockTime, inodeTime   uint64
	valid                  uint32
	_                      uint32
}

// validLimits says that the limits of blocks are set, and nothing else.
const validLimits = 1

// state is struct fs_quota_statv.
type state struct {
	version uint8
	_       uint8
	flags   uint16
	_       [156]byte
}

const (
	stateVersion     = 1
	projectsEnforced = 1 << 5
)

// attributes is struct fsxattr.
type attributes struct {
	flags, extentSize, extents, project, copyExtentSize uint32
	_                                                   [8]byte
}

const (
	getAttributes   = 0x801c581f // FS_IOC_FSGETXATTR
	setAttributes   = 0x401c5820 // FS_IOC_FSSETXATTR
	projectInherits = 0x200
)

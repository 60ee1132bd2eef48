/* Loaded before libiscsi, whose release 1.19 cannot do two things over RDMA that its own test program does all the time:
 *
 * - Close a connection and open another one in the same process: so connections stay open until the process ends.
 * - Wait. It looks for events for a second at a time, and that there was none it takes for an error over RDMA, though not
 *   over TCP: so a look takes as long as a slow command may.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>

struct iscsi_context;

int iscsi_destroy_context(struct iscsi_context *iscsi)
{
	(void)iscsi;
	return 0;
}

int poll(struct pollfd *fds, nfds_t count, int milliseconds)
{
	static int (*libc_poll)(struct pollfd *, nfds_t, int);

	if (!libc_poll)
		libc_poll = (int (*)(struct pollfd *, nfds_t, int))dlsym(RTLD_NEXT, "poll");
	return libc_poll(fds, count, count == 1 && milliseconds == 1000 ? 30000 : milliseconds);
}

/* Loaded first (LD_PRELOAD) where ASan looks for leaks: MPI closes its components before the
 * process ends, and the check then searches the memory map anew for each address in them, which
 * takes most of a short run's time. */
int dlclose(void *handle);
int dlclose(void *handle)
{
    (void)handle;
    return 0;
}

/* ASan wants to be first itself. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "verify_asan_link_order=0";
}

//! The functions of libbpf that are called.
//!
//! # Invariants
//! 1. The functions have the signatures of libbpf.h. They stay the same in all libraries named `libbpf.so.1`.
//! 2. Maps, programs and links are used only while their object is open: they have its lifetime, or keep it open.
//! 3. None of the functions is bound to a thread.
//! 4. The initial value of a map of global data has the length that libbpf reports, and stays in place until the object is loaded.
#![expect(unsafe_code, reason = "calls of a C library; listed in docs/unsafe.md")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use libloading::Library;
use nix::errno::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::LoadError;

/// Name of the library. The number is that of the interface.
const NAME: &str = "libbpf.so.1";

/// `struct bpf_object`.
enum RawObject {}

/// `struct bpf_map`.
enum RawMap {}

/// `struct bpf_program`.
enum RawProgram {}

/// `struct bpf_link`.
enum RawLink {}

/// `struct bpf_iter_attach_opts`.
#[repr(C)]
struct IteratorOptions {
    size: usize,
    target: *const Target,
    target_length: u32,
    /// libbpf accepts only zero behind the last field that it knows.
    padding: u32,
}

/// Part `task` of `union bpf_iter_link_info`: one of these numbers is not zero.
#[repr(C)]
struct Target {
    thread: u32,
    process: u32,
    descriptor: u32,
}

/// `struct bpf_test_run_opts`, as far as it is used; all other fields are zero.
#[repr(C)]
struct RunOptions {
    size: usize,
    data_in: *const c_void,
    data_out: *mut c_void,
    data_in_length: u32,
    data_out_length: u32,
    context_in: *const c_void,
    context_out: *mut c_void,
    context_in_length: u32,
    context_out_length: u32,
    returned: u32,
    repeat: c_int,
    duration: u32,
    flags: u32,
    cpu: u32,
    batch: u32,
}

/// `libbpf_print_fn_t`; the last argument is a list of variable arguments.
type Print = unsafe extern "C" fn(c_int, *const c_char, *mut c_void) -> c_int;

/// The library cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// There is no such library.
    Missing,
    /// It has no function of this name.
    TooOld(&'static str),
}

/// Reason why a file cannot be opened as an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotOpened {
    /// The file cannot be read.
    System(Errno),
    /// The file is not an object of BPF programs for this machine.
    Invalid(Fault),
}

/// Fault of an object file, from `enum libbpf_errno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not an ELF file.
    NotElf,
    /// It is an ELF file without valid BPF programs.
    Format,
    /// It was built for machines of the other byte order.
    ByteOrder,
    /// Anything else; the number of the library.
    Other(i32),
}

impl Fault {
    /// First number of `enum libbpf_errno`. Those below are numbers of the system.
    const FIRST: i32 = 4_000;

    const fn of(number: i32) -> Option<Self> {
        Some(match number {
            Self::FIRST => Self::NotElf,
            4_001 => Self::Format,
            4_003 => Self::ByteOrder,
            number if number > Self::FIRST => Self::Other(number),
            _ => return None,
        })
    }
}

impl core::fmt::Display for Fault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NotElf => f.write_str("it is not an ELF file"),
            Self::Format => f.write_str("it is not an ELF file, or contains no valid BPF programs"),
            Self::ByteOrder => f.write_str("it has the byte order of other machines"),
            Self::Other(number) => write!(f, "libbpf reports error {number}"),
        }
    }
}

/// Declares the table of functions, each with its name in the library.
macro_rules! functions {
    ($($name:ident = $symbol:literal: $signature:ty,)*) => {
        /// The functions of an open library.
        struct Functions {
            $($name: $signature,)*
            /// Keeps the functions in memory.
            _library: Library,
        }

        impl Functions {
            fn find(library: Library) -> Result<Self, Unusable> {
                $(
                    // SAFETY: I1.
                    let found = unsafe { library.get::<$signature>($symbol.as_bytes()) };
                    let $name = *found.map_err(|_| Unusable::TooOld($symbol))?;
                )*
                Ok(Self { $($name,)* _library: library })
            }
        }
    };
}

functions! {
    set_print = "libbpf_set_print": unsafe extern "C" fn(Option<Print>) -> Option<Print>,
    num_possible_cpus = "libbpf_num_possible_cpus": unsafe extern "C" fn() -> c_int,
    open_file = "bpf_object__open_file": unsafe extern "C" fn(*const c_char, *const c_void) -> *mut RawObject,
    load = "bpf_object__load": unsafe extern "C" fn(*mut RawObject) -> c_int,
    close = "bpf_object__close": unsafe extern "C" fn(*mut RawObject),
    find_map = "bpf_object__find_map_by_name": unsafe extern "C" fn(*const RawObject, *const c_char) -> *mut RawMap,
    set_max_entries = "bpf_map__set_max_entries": unsafe extern "C" fn(*mut RawMap, u32) -> c_int,
    initial_value = "bpf_map__initial_value": unsafe extern "C" fn(*const RawMap, *mut usize) -> *mut c_void,
    value_size = "bpf_map__value_size": unsafe extern "C" fn(*const RawMap) -> u32,
    map_fd = "bpf_map__fd": unsafe extern "C" fn(*const RawMap) -> c_int,
    attach_scheduler = "bpf_map__attach_struct_ops": unsafe extern "C" fn(*const RawMap) -> *mut RawLink,
    find_program = "bpf_object__find_program_by_name": unsafe extern "C" fn(*const RawObject, *const c_char) -> *mut RawProgram,
    attach_program = "bpf_program__attach": unsafe extern "C" fn(*const RawProgram) -> *mut RawLink,
    attach_iterator = "bpf_program__attach_iter": unsafe extern "C" fn(*const RawProgram, *const IteratorOptions) -> *mut RawLink,
    program_fd = "bpf_program__fd": unsafe extern "C" fn(*const RawProgram) -> c_int,
    run_program = "bpf_prog_test_run_opts": unsafe extern "C" fn(c_int, *mut RunOptions) -> c_int,
    link_fd = "bpf_link__fd": unsafe extern "C" fn(*const RawLink) -> c_int,
    start_iterator = "bpf_iter_create": unsafe extern "C" fn(c_int) -> c_int,
    destroy = "bpf_link__destroy": unsafe extern "C" fn(*mut RawLink) -> c_int,
    look_up = "bpf_map_lookup_elem": unsafe extern "C" fn(c_int, *const c_void, *mut c_void) -> c_int,
    update = "bpf_map_update_elem": unsafe extern "C" fn(c_int, *const c_void, *const c_void, u64) -> c_int,
    delete = "bpf_map_delete_elem": unsafe extern "C" fn(c_int, *const c_void) -> c_int,
}

/// The open library.
#[derive(Clone)]
pub(crate) struct Libbpf(Arc<Functions>);

impl core::fmt::Debug for Libbpf {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(NAME)
    }
}

/// An object: the BPF programs and maps of a file.
#[derive(Debug)]
pub struct Object {
    library: Libbpf,
    object: NonNull<RawObject>,
}

/// A map of an object.
#[derive(Clone, Copy, Debug)]
pub struct Map<'o> {
    object: &'o Object,
    map: NonNull<RawMap>,
}

/// Programs that the kernel uses, with their object. They are detached when this is dropped.
#[derive(Debug)]
pub struct Attached {
    object: Object,
    links: Vec<NonNull<RawLink>>,
}

/// A program that reports on one process whenever it is read. The kernel keeps the program as long as this.
#[derive(Debug)]
pub struct Iterator {
    library: Libbpf,
    link: OwnedFd,
}

impl Libbpf {
    /// Opens the library.
    ///
    /// # Errors
    /// There is none, or it lacks a function.
    pub(crate) fn open() -> Result<Self, Unusable> {
        // SAFETY: the initialisation of libbpf has no conditions.
        let library = unsafe { Library::new(NAME) }.map_err(|_| Unusable::Missing)?;
        Ok(Self(Arc::new(Functions::find(library)?)))
    }

    /// Stops the library from printing messages on standard error.
    pub(crate) fn silence(&self) {
        // SAFETY: I1; without a function the library prints nothing.
        unsafe { (self.0.set_print)(None) };
    }

    /// Opens an object file.
    ///
    /// # Errors
    /// The file cannot be read, or is not a BPF object.
    pub(crate) fn open_object(&self, file: &Path) -> Result<Object, NotOpened> {
        let name = CString::new(file.as_os_str().as_bytes());
        let name = name.map_err(|_| NotOpened::System(Errno::EINVAL))?;
        // SAFETY: I1; the name outlives the call, and there are no options.
        let object = unsafe { (self.0.open_file)(name.as_ptr(), core::ptr::null()) };
        let object = NonNull::new(object).ok_or_else(|| {
            let number = Errno::last_raw();
            let system = || NotOpened::System(Errno::from_raw(number));
            Fault::of(number).map_or_else(system, NotOpened::Invalid)
        })?;
        Ok(Object { library: self.clone(), object })
    }
}

// SAFETY: I3.
unsafe impl Send for Object {}

// SAFETY: I3.
unsafe impl Send for Attached {}

impl Object {
    /// Returns the number of CPUs that the machine may ever have.
    ///
    /// # Errors
    /// The kernel does not report it.
    pub fn possible_cpus(&self) -> Result<u32, Errno> {
        // SAFETY: I1.
        let count = unsafe { (self.library.0.num_possible_cpus)() };
        u32::try_from(count).map_err(|_| Errno::from_raw(-count))
    }

    /// Returns the map of a name.
    #[must_use]
    pub fn map(&self, name: &CStr) -> Option<Map<'_>> {
        let find = self.library.0.find_map;
        // SAFETY: I1, I2; the name outlives the call.
        let map = unsafe { find(self.object.as_ptr(), name.as_ptr()) };
        Some(Map { object: self, map: NonNull::new(map)? })
    }

    /// Loads the programs and maps into the kernel.
    ///
    /// # Errors
    /// The kernel rejects them, or does not permit it.
    pub fn load(&mut self) -> Result<(), LoadError> {
        // SAFETY: I1, I2.
        let loaded = result(unsafe { (self.library.0.load)(self.object.as_ptr()) });
        loaded.map_err(|errno| match errno {
            Errno::EPERM => LoadError::NotPermitted,
            Errno::EACCES if !nix::unistd::geteuid().is_root() => LoadError::NotPermitted,
            errno => LoadError::Rejected(errno),
        })
    }

    /// Attaches the scheduler in the map of that name, or returns the object.
    ///
    /// # Errors
    /// The kernel's, with the object.
    pub fn attach_scheduler(self, name: &CStr) -> Result<Attached, (Self, Errno)> {
        let Some(map) = self.map(name).map(|map| map.map) else { return Err((self, Errno::ENOENT)) };
        // SAFETY: I1, I2.
        let link = unsafe { (self.library.0.attach_scheduler)(map.as_ptr()) };
        match NonNull::new(link) {
            Some(link) => Ok(Attached { object: self, links: vec![link] }),
            None => Err((self, Errno::last())),
        }
    }

    /// Attaches the programs of these names, each where its section says.
    ///
    /// # Errors
    /// There is no such program, or the kernel does not attach it; then none stays attached.
    pub fn attach(self, names: &[&CStr]) -> Result<Attached, Errno> {
        let mut attached = Attached { object: self, links: Vec::with_capacity(names.len()) };
        for name in names {
            let program = attached.object.program(name)?;
            // SAFETY: I1, I2.
            let link = unsafe { (attached.object.library.0.attach_program)(program.as_ptr()) };
            attached.links.push(NonNull::new(link).ok_or_else(Errno::last)?);
        }
        Ok(attached)
    }

    /// Lets the program of that name, an iterator of tasks or of their files, report on a process.
    ///
    /// # Errors
    /// There is no such program, or the kernel cannot restrict it to a process (before Linux 6.1).
    pub fn iterate(&self, name: &CStr, process: u32) -> Result<Iterator, Errno> {
        let program = self.program(name)?;
        let target = Target { thread: 0, process, descriptor: 0 };
        let target_length = u32::try_from(size_of::<Target>()).expect("a few bytes");
        let size = size_of::<IteratorOptions>();
        let options = IteratorOptions { size, target: &raw const target, target_length, padding: 0 };
        let functions = &self.library.0;
        // SAFETY: I1, I2; the options and the target outlive the call.
        let link = unsafe { (functions.attach_iterator)(program.as_ptr(), &raw const options) };
        let link = NonNull::new(link).ok_or_else(Errno::last)?;
        // SAFETY: I1.
        let fd = unsafe { (functions.link_fd)(link.as_ptr()) };
        // SAFETY: the descriptor is open until the link is destroyed below.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let kept = fd.try_clone_to_owned();
        // SAFETY: I1; neither the link nor its own descriptor is used later.
        let _closed = unsafe { (functions.destroy)(link.as_ptr()) };
        let link = kept.map_err(|error| error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw))?;
        Ok(Iterator { library: self.library.clone(), link })
    }

    /// Runs the program of that name, of the kind `syscall`, once. Its argument has the size of `T`.
    ///
    /// # Errors
    /// There is no such program, the kernel does not run it, or it returns an error number.
    pub fn run<T: IntoBytes + FromBytes>(&self, name: &CStr, mut argument: T) -> Result<(), Errno> {
        let program = self.program(name)?;
        let context_in_length = u32::try_from(size_of::<T>()).map_err(|_| Errno::E2BIG)?;
        let mut options = RunOptions {
            size: size_of::<RunOptions>(),
            data_in: core::ptr::null(),
            data_out: core::ptr::null_mut(),
            data_in_length: 0,
            data_out_length: 0,
            context_in: (&raw mut argument).cast_const().cast(),
            context_out: core::ptr::null_mut(),
            context_in_length,
            context_out_length: 0,
            returned: 0,
            repeat: 0,
            duration: 0,
            flags: 0,
            cpu: 0,
            batch: 0,
        };
        // SAFETY: I1, I2.
        let fd = unsafe { (self.library.0.program_fd)(program.as_ptr()) };
        // SAFETY: I1; argument and options outlive the call. The kernel reads as many bytes as the argument has, and writes them back.
        result(unsafe { (self.library.0.run_program)(fd, &raw mut options) })?;
        result(options.returned.cast_signed())
    }

    fn program(&self, name: &CStr) -> Result<NonNull<RawProgram>, Errno> {
        // SAFETY: I1, I2; the name outlives the call.
        let program = unsafe { (self.library.0.find_program)(self.object.as_ptr(), name.as_ptr()) };
        NonNull::new(program).ok_or(Errno::ENOENT)
    }
}

impl Iterator {
    /// Runs the program. Its report is read from the file.
    ///
    /// # Errors
    /// The kernel has no memory or no descriptor left.
    pub fn start(&self) -> Result<File, Errno> {
        // SAFETY: I1.
        let fd = unsafe { (self.library.0.start_iterator)(self.link.as_raw_fd()) };
        if fd < 0 {
            return Err(Errno::from_raw(-fd));
        }
        // SAFETY: the descriptor is new, and nothing else owns it.
        Ok(unsafe { File::from_raw_fd(fd) })
    }
}

impl Attached {
    /// Returns the object.
    #[must_use]
    pub const fn object(&self) -> &Object {
        &self.object
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        for link in self.links.drain(..) {
            // SAFETY: I1, I2; the link is not used later. The object is closed after this.
            let _detached = unsafe { (self.object.library.0.destroy)(link.as_ptr()) };
        }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: I1; by I2 neither the object nor its maps are used later.
        unsafe { (self.library.0.close)(self.object.as_ptr()) };
    }
}

impl Map<'_> {
    fn functions(&self) -> &Functions {
        &self.object.library.0
    }

    /// Sets the number of entries, before the object is loaded.
    ///
    /// # Errors
    /// The object is loaded already.
    pub fn set_entries(&self, entries: u32) -> Result<(), Errno> {
        // SAFETY: I1, I2.
        result(unsafe { (self.functions().set_max_entries)(self.map.as_ptr(), entries) })
    }

    /// Returns the size of its values.
    #[must_use]
    pub fn value_size(&self) -> usize {
        // SAFETY: I1, I2.
        usize::try_from(unsafe { (self.functions().value_size)(self.map.as_ptr()) }).unwrap_or(usize::MAX)
    }

    /// Returns the memory that holds the value of a map of global data until its object is loaded, if it has the size of `T`.
    fn memory<T>(&self) -> Option<NonNull<T>> {
        let mut length = 0;
        // SAFETY: I1, I2; the length outlives the call.
        let memory = unsafe { (self.functions().initial_value)(self.map.as_ptr(), &raw mut length) };
        let memory = NonNull::new(memory.cast::<T>()).filter(|memory| memory.is_aligned())?;
        (length == size_of::<T>()).then_some(memory)
    }

    /// Returns the value of a map of global data, before the object is loaded, unless its size is another one.
    #[must_use]
    pub fn initial<T: FromBytes>(&self) -> Option<T> {
        let memory = self.memory::<T>()?;
        // SAFETY: I4; any bytes are a valid value.
        Some(unsafe { memory.read_volatile() })
    }

    /// Returns the value of a map of global data of a loaded object, unless its size is another one.
    #[must_use]
    pub fn read<T: FromBytes>(&self) -> Option<T> {
        // Libraries before version 1.5 do not map it into this process when they load the object.
        self.memory::<T>()?;
        self.get(&0_u32).ok()
    }

    /// Sets the value of a map of global data, before the object is loaded. Returns false if its size is another one.
    #[must_use]
    pub fn write<T: IntoBytes>(&self, value: T) -> bool {
        let Some(memory) = self.memory::<T>() else { return false };
        // SAFETY: I4.
        unsafe { memory.write_volatile(value) };
        true
    }

    fn fd(&self) -> c_int {
        // SAFETY: I1, I2.
        unsafe { (self.functions().map_fd)(self.map.as_ptr()) }
    }

    /// Sets an entry of a loaded map, whose keys and values have the sizes of `K` and `V`.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn set<K: IntoBytes + Immutable, V: IntoBytes + Immutable>(
        &self,
        key: &K,
        value: &V,
    ) -> Result<(), Errno> {
        let (key, value) = ((&raw const *key).cast(), (&raw const *value).cast());
        // SAFETY: I1; key and value outlive the call. The kernel reads as many bytes as the map's entries have, which the caller knows.
        result(unsafe { (self.functions().update)(self.fd(), key, value, 0) })
    }

    /// Returns an entry of a loaded map, whose keys and values have the sizes of `K` and `V`.
    ///
    /// # Errors
    /// There is none.
    pub fn get<K: IntoBytes + Immutable, V: FromBytes>(&self, key: &K) -> Result<V, Errno> {
        let mut value = MaybeUninit::<V>::zeroed();
        let look_up = self.functions().look_up;
        // SAFETY: I1; key and value outlive the call. The kernel reads and writes as many bytes as the map's entries have, which the caller
        // knows.
        result(unsafe { look_up(self.fd(), (&raw const *key).cast(), value.as_mut_ptr().cast()) })?;
        // SAFETY: any bytes are a valid value.
        Ok(unsafe { value.assume_init() })
    }

    /// Removes an entry of a loaded map, whose keys have the size of `K`.
    ///
    /// # Errors
    /// There is none.
    pub fn remove<K: IntoBytes + Immutable>(&self, key: &K) -> Result<(), Errno> {
        // SAFETY: I1; the key outlives the call. The kernel reads as many bytes as the map's keys have, which the caller knows.
        result(unsafe { (self.functions().delete)(self.fd(), (&raw const *key).cast()) })
    }
}

/// Converts the result of a function: zero, or a negative error number.
fn result(code: c_int) -> Result<(), Errno> {
    if code < 0 { Err(Errno::from_raw(-code)) } else { Ok(()) }
}
